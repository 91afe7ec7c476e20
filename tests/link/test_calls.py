"""Request and reply."""

from __future__ import annotations

import pytest
from twisted.internet.task import Clock

from iop.errors import CommandTimeout, Conflict, QueueFull
from iop.link.calls import Calls
from iop.link.errors import LinkDown, LocalProtocolError
from iop.proto.node_pb2 import NodeCommandRequest, NodeCommandResponse


class Link:
    peer_id = "node-1"

    def __init__(self) -> None:
        self.sent = []
        self.error = None

    def send(self, kind, message) -> None:
        if self.error:
            raise self.error
        self.sent.append((kind, message))


REQUEST, REPLY = NodeCommandRequest(command_id="c1", line="status"), NodeCommandResponse(command_id="c1", ok=True)


@pytest.fixture
def world():
    clock = Clock()
    return clock, Calls(clock), Link()


def ask(calls, link, call_id="c1", timeout_s=30.0):
    outcome = []
    calls.ask(link, "node_command_request", REQUEST, call_id, timeout_s).addBoth(outcome.append)
    return outcome


def test_a_reply_reaches_who_asked(world):
    clock, calls, link = world
    outcome = ask(calls, link)
    assert link.sent == [("node_command_request", REQUEST)]
    assert calls.answered("c1", REPLY)
    assert outcome == [REPLY]
    assert calls.pending == 0 and clock.getDelayedCalls() == []


def test_no_reply_in_time_is_a_command_timeout(world):
    clock, calls, link = world
    outcome = ask(calls, link)
    clock.advance(30)
    assert outcome[0].check(CommandTimeout)
    assert not calls.answered("c1", REPLY)


def test_a_link_that_goes_down_fails_its_own_calls_only(world):
    clock, calls, link = world
    other = Link()
    outcome, untouched = ask(calls, link), ask(calls, other, "c2")
    calls.link_down(link)
    assert outcome[0].check(LinkDown) and untouched == []
    assert calls.answered("c2", REPLY)


def test_a_reply_over_another_link_is_not_taken(world):
    clock, calls, link = world
    outcome = ask(calls, link)
    assert not calls.answered("c1", REPLY, Link())
    assert outcome == []
    assert calls.answered("c1", REPLY, link)


def test_a_reply_that_nobody_waits_for_is_told(world):
    assert not world[1].answered("c9", REPLY)


def test_an_id_in_use_is_a_conflict(world):
    clock, calls, link = world
    ask(calls, link)
    with pytest.raises(Conflict):
        calls.ask(link, "node_command_request", REQUEST, "c1", 1)
    calls.link_down(link)


def test_a_cancelled_call_is_forgotten(world):
    clock, calls, link = world
    answer = calls.ask(link, "node_command_request", REQUEST, "c1", 30)
    answer.addErrback(lambda _: None)
    answer.cancel()
    assert calls.pending == 0 and clock.getDelayedCalls() == []
    assert not calls.answered("c1", REPLY)


def test_what_cannot_be_sent_is_not_waited_for(world):
    clock, calls, link = world
    link.error = LocalProtocolError()
    with pytest.raises(LocalProtocolError):
        calls.ask(link, "node_command_request", REQUEST, "c1", 30)
    assert calls.pending == 0


def test_there_is_a_bound_on_unanswered_calls():
    calls = Calls(Clock(), limit=1)
    ask(calls, Link())
    with pytest.raises(QueueFull):
        calls.ask(Link(), "node_command_request", REQUEST, "c2", 30)


def test_an_answer_may_ask_again_with_the_same_id(world):
    clock, calls, link = world
    again = []
    calls.ask(link, "node_command_request", REQUEST, "c1", 30).addCallback(
        lambda _: again.append(calls.ask(link, "node_command_request", REQUEST, "c1", 30)))
    calls.answered("c1", REPLY)
    assert calls.pending == 1 and len(again) == 1
