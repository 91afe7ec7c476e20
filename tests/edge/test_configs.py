"""What nodes are sent of the configuration, and what a reload changes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from iop.config import LimitsConfig
from iop.errors import NoSuchTarget
from iop.events import ending
from iop.keys import KeyRing
from iop.link.limits import default_limits
from iop.proto.link_pb2 import Hello
from iop.proto.node_pb2 import AdapterConfig, ConfigApplied, ConfigFault, ConfigPartApplied, TargetConfig
from iop.proto.run_pb2 import Outcome
from tests.edge.conftest import FakeEdge, edge_config, entry, prompt, report, running, status


def test_the_whole_configuration_carries_the_edges_defaults(make_edge: Any) -> None:
    edge = make_edge(entry("n1", zone="a"))
    edge.service.reload(edge_config(entry("n1", zone="a")).__class__(**{
        **{name: getattr(edge.service._config, name) for name in edge.service._config.__struct_fields__},
        "limits": LimitsConfig(run_s=60)}), edge.service.keyring)
    payload = edge.node(ready=False).last("node_config_payload")
    assert payload.adapters[0].targets[0].limits.run_s == 60 and dict(payload.labels) == {"zone": "a"}


def test_faults_of_a_configuration_are_shown_and_explain_a_missing_target(edge: FakeEdge) -> None:
    node = edge.node()
    fault = ConfigFault(path="adapters/cli/targets/fix/argv", code="policy_denied", reason="sh is not allowed here.")
    node.send("config_applied", ConfigApplied(revision=2, parts=[
        ConfigPartApplied(path="adapters/cli", accepted=True, faults=[fault])]))
    assert edge.service.node("n1").config_faults == ["adapters/cli/targets/fix/argv: sh is not allowed here."]
    assert edge.kinds()[-1] == "config_rejected"
    with pytest.raises(Exception, match="sh is not allowed here"):
        edge.submit(prompt("fix", adapter="cli"))
    node.send("config_applied", ConfigApplied(revision=3, parts=[ConfigPartApplied(path="adapters/cli", accepted=True)]))
    assert edge.service.node("n1").config_faults == []


def test_a_reload_sends_only_what_changed_and_leaves_work_alone(edge: FakeEdge) -> None:
    node = edge.node()
    request = running(edge, node, "a")
    sent = len(node.all("node_config_payload"))
    edge.service.reload(edge_config(entry("n1")), edge.service.keyring)
    assert len(node.all("node_config_payload")) == sent
    changed = entry("n1", zone="b")
    changed.adapters.append(AdapterConfig(adapter="cli", targets=[TargetConfig(name="fix")]))
    edge.service.reload(edge_config(changed), edge.service.keyring)
    payload = node.last("node_config_payload")
    assert (payload.whole, [one.adapter for one in payload.adapters]) == (False, ["cli"])
    assert dict(payload.labels) == {"zone": "b"}
    edge.service.reload(edge_config(entry("n1")), edge.service.keyring)
    assert list(node.last("node_config_payload").removed_adapters) == ["cli"]
    node.emit(request, 3, ending("completed", Outcome(code="ok")))
    assert edge.run(request.run_id).state == "completed"


def test_a_node_that_is_gone_from_the_configuration_is_forgotten_once_nothing_is_left_of_it(make_edge: Any) -> None:
    edge = make_edge(entry("n1"), entry("ghost", "boo"), entry("busy", "work"), entry("kept", "some"))
    busy = edge.node("busy", told=status("work"))
    request = running(edge, busy, target="work")
    busy.pair.cut()
    edge.node("kept", told=status("some"))
    edge.service.reload(edge_config(entry("n1")), edge.service.keyring)
    assert [node.node_id for node in edge.service.nodes()] == ["busy", "kept", "n1"]
    with pytest.raises(NoSuchTarget):
        edge.submit(prompt("boo"))
    busy = edge.node("busy", reports=[report(request, 1, first=2)])
    busy.emit(request, 2, ending("completed", Outcome(code="ok")))
    busy.pair.cut()
    edge.service.reload(edge_config(entry("n1")), edge.service.keyring)
    assert [node.node_id for node in edge.service.nodes()] == ["kept", "n1"]


def test_a_node_that_is_forgotten_while_it_is_greeted_is_known_all_the_same(make_edge: Any) -> None:
    edge = make_edge(entry("n1"), entry("late"))
    handler = edge.handler_for(Hello(peer_id="late"))
    edge.service.reload(edge_config(entry("n1")), edge.service.keyring)
    handler.link_up(SimpleNamespace(remote="memory", epoch=1, limits=default_limits()))
    assert edge.service.node("late").state == "up"


def test_a_key_that_is_taken_away_closes_its_link(edge: FakeEdge) -> None:
    node = edge.node()
    edge.service.reload(edge_config(entry("n1")), KeyRing([]))
    node.pair.pump()
    assert "auth_failed" in str(node.down)


def test_a_key_that_comes_to_its_end_closes_its_link(edge: FakeEdge) -> None:
    node = edge.node()
    edge.service.keyring = KeyRing([])
    edge.clock.advance(1)
    node.pair.pump()
    assert node.down is not None
