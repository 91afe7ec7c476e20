"""What a request must be, and which run a repeated one means."""

from __future__ import annotations

from typing import Any

import pytest

from iop.errors import Conflict, HistoryUnavailable, InvalidRequest, NoSuchTarget
from iop.proto.run_pb2 import Limits, RunRequest
from tests.edge.conftest import FakeEdge, entry, prompt, status


def test_new_runs_are_refused_while_history_cannot_be_written_and_leave_nothing(edge: FakeEdge) -> None:
    edge.node()
    edge.history.trouble = "the disk is full"
    with pytest.raises(HistoryUnavailable):
        edge.submit()
    assert edge.service.node("n1").running == 0
    edge.history.trouble = ""
    assert edge.submit().state == "placed"


@pytest.mark.parametrize("request_, reason", [
    (RunRequest(adapter="mock", target="echo"), "exactly one input"),
    (prompt(labels={"a b": "c"}), "label"),
    (prompt(limits=Limits(run_s=-1)), "limits.run_s"),
    (prompt(limits=Limits(queue_s=float("nan"))), "limits.queue_s"),
    (prompt(priority=5000), "priority"),
    (prompt(session_id="../x"), "session_id"),
    (RunRequest(adapter="mock", prompt="x"), "by their names"),
])
def test_a_request_that_cannot_be_understood_names_the_field(edge: FakeEdge, request_: RunRequest, reason: str) -> None:
    edge.node()
    with pytest.raises(InvalidRequest, match=reason):
        edge.submit(request_)


def test_an_unknown_target_is_refused_and_a_pinned_one_goes_to_its_node(make_edge: Any) -> None:
    edge = make_edge(entry("n1"), entry("n2"))
    with pytest.raises(NoSuchTarget):
        edge.submit(prompt("nothing"))
    edge.node("n1")
    node = edge.node("n2")
    assert edge.submit(prompt("n2/mock/echo")).node_id == "n2"
    assert node.last("run_request").target == "echo"
    with pytest.raises(NoSuchTarget):
        edge.submit(prompt("n9/mock/echo"))
    assert edge.service.resolve("echo-alias") == ("mock", "echo", "")
    assert edge.service.resolve("mock/echo") == ("mock", "echo", "")
    assert edge.service.resolve("n2/mock/echo") == ("mock", "echo", "n2")
    assert {model.name for model in edge.service.models()} == {"echo", "echo-alias"}


def test_an_idempotency_key_starts_one_run(edge: FakeEdge) -> None:
    node = edge.node()
    first, second = edge.submit(key="k"), edge.submit(key="k")
    assert first.run_id == second.run_id and len(node.all("run_request")) == 1
    assert edge.service.node("n1").running == 1


@pytest.mark.parametrize("other", [
    {"text": "something else"}, {"target": "other"}, {"labels": {"a": "b"}}, {"limits": Limits(run_s=5)}, {"priority": 1}])
@pytest.mark.parametrize("ended", [False, True])
def test_an_idempotency_key_of_another_request_is_refused(make_edge: Any, other: dict[str, Any], ended: bool) -> None:
    edge = make_edge(entry("n1", "echo", "other"))
    node = edge.node(told=status("echo", "other"))
    edge.submit(key="k")
    if ended:
        node.play(node.accept(), "x")
    with pytest.raises(Conflict):
        edge.submit(prompt(**other), key="k")
    assert len(node.all("run_request")) == 1 and edge.service.node("n1").running == (not ended)
