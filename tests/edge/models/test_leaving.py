"""A client that leaves stops its run, in whatever phase; unless it detached, or others wait for the same run."""


import pytest
from twisted.internet.defer import Deferred

from iop.errors import QueueFull
from iop.testing.edge import script
from tests.edge.models.chats import ASK, CHAT, STREAM, chunk


@pytest.mark.parametrize("body", [ASK, STREAM])
@pytest.mark.parametrize("phase", ["queued", "started", "output"])
def test_a_client_that_leaves_stops_its_run(world, body, phase):
    wire = world.chatting(body)
    run = world.edge.last
    if phase != "queued":
        run.start()
    if phase == "output":
        run.emit(chunk("a"))
    wire.leave()
    assert [(source.face, reason) for source, reason in run.cancels] == [("openai", "client disconnected")]
    assert run.cursors[-1].closed


def test_a_client_that_leaves_while_the_run_is_stored_stops_it(world):
    stored = world.edge.submitting = Deferred()
    wire = world.chatting()
    wire.leave()
    assert not world.edge.runs_by_id
    stored.callback(None)
    assert [reason for _, reason in world.edge.last.cancels] == ["client disconnected"]


def test_a_client_that_leaves_a_submit_that_fails_leaves_nothing(world):
    stored = world.edge.submitting = Deferred()
    world.edge.refusal = QueueFull()
    wire = world.chatting()
    wire.leave()
    stored.callback(None)
    assert not world.edge.runs_by_id


def test_one_who_leaves_after_the_end_cancels_nothing(world):
    world.edge.scripts["tiny"] = script(chunk("a"))
    wire = world.chatting()
    wire.leave()
    assert not world.edge.last.cancels


def test_a_detached_run_goes_on_for_as_long_as_it_was_told(world):
    wire = world.chatting(x_iop_detach="60")
    run = world.edge.last
    wire.leave()
    assert run.cursors[-1].closed
    world.clock.advance(59)
    assert not run.cancels
    world.clock.advance(2)
    assert run.cancels[0][1] == "client disconnected and did not come back in 60 s"


@pytest.mark.parametrize("text", ["x", "-1", "1.5", "999999999999", "0000000009999999999"])
def test_a_bad_detach_is_refused(world, text):
    assert world.call("POST", CHAT, ASK, x_iop_detach=text).status == 400
    assert not world.edge.runs_by_id


def test_the_first_of_two_clients_of_one_key_to_leave_does_not_stop_the_others_run(world):
    first, second = (world.chatting(idempotency_key="k") for _ in range(2))
    run = world.edge.last
    assert len(world.edge.runs_by_id) == 1
    run.start()
    first.leave()
    assert not run.cancels
    run.emit(chunk("a"))
    second.leave()
    assert [reason for _, reason in run.cancels] == ["client disconnected"]


def test_a_client_that_left_before_its_run_was_stored_does_not_stop_the_others(world):
    second = world.chatting(idempotency_key="k")
    stored = world.edge.submitting = Deferred()
    first = world.chatting(idempotency_key="k")
    first.leave()
    stored.callback(None)
    assert not world.edge.last.cancels
    second.leave()
    assert world.edge.last.cancels
