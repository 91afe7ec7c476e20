"""Two links that claim to be the same peer."""

from __future__ import annotations

from twisted.internet.task import Clock

from iop.link.errors import LinkRefused
from iop.link.frames import pack
from iop.link.peers import Peers
from iop.proto.link_pb2 import Ping
from iop.testing.links import LinkPair, Recorder


class Twins:
    """Two pairs of the same node id."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.peers = Peers(self.clock, epoch=41)
        self.old_role, self.new_role = Recorder(), Recorder()
        self.old = LinkPair(self.old_role, Recorder(), self.clock, peers=self.peers)
        self.new = LinkPair(self.new_role, Recorder(), self.clock, peers=self.peers, greet=False)
        self.refusals: list[LinkRefused] = []
        self.new.dialing._on_failure = self.refusals.append

    def elapse(self, seconds: float) -> None:
        self.clock.advance(seconds)
        for _ in range(5):
            self.new.pump()
            self.old.pump()


def test_a_newcomer_is_refused_while_the_old_link_answers():
    twins = Twins()
    for _ in range(3):
        twins.elapse(0)
    assert twins.refusals[0].code == "duplicate_node" and twins.refusals[0].retry_after_s >= 30
    assert twins.old_role.kinds == ["link_up"] and twins.new_role.kinds == []
    assert twins.peers.get("node-1") is twins.old.listener
    assert twins.new.factory.refused["duplicate_node"] == 1


def test_a_newcomer_takes_the_place_of_a_link_that_does_not_answer():
    twins = Twins()
    order = []
    twins.old_role.link_down = lambda link, reason: order.append(("down", twins.peers.get("node-1")))
    twins.new_role.link_up = lambda link: order.append(("up", link.epoch))
    twins.old.wire.stopped = True
    twins.elapse(0)
    twins.elapse(1.9)
    assert order == []
    twins.elapse(0.2)
    assert order == [("down", None), ("up", 43)]
    assert twins.peers.get("node-1") is twins.new.listener
    assert twins.old.listener.transport.ending is not None or twins.old.listener.transport.disconnected


def test_late_frames_of_a_dead_link_are_no_answer():
    twins = Twins()
    twins.old.wire.stopped = True
    twins.elapse(0)
    twins.old.listener.dataReceived(b"\0\0\0\x04" + pack("ping", Ping(nonce=1)))
    twins.elapse(2.1)
    assert twins.new_role.kinds == ["link_up"]


def test_a_third_newcomer_is_refused_while_the_old_link_is_asked():
    twins = Twins()
    twins.old.wire.stopped = True
    twins.elapse(0)
    third = LinkPair(Recorder(), Recorder(), twins.clock, peers=twins.peers)
    assert third.factory.refused["duplicate_node"] == 1
    twins.elapse(2.1)
    assert twins.new_role.kinds == ["link_up"]


def test_a_newcomer_is_let_in_at_once_when_the_old_link_goes_while_it_is_asked():
    twins = Twins()
    twins.old.wire.stopped = True
    twins.elapse(0)
    twins.old.cut()
    twins.elapse(0)
    assert twins.new_role.kinds == ["link_up"] and twins.old_role.kinds == ["link_up", "link_down"]


def test_a_newcomer_that_leaves_while_the_old_link_is_asked_harms_nothing():
    twins = Twins()
    twins.elapse(0)
    twins.new.cut()
    for _ in range(3):
        twins.elapse(1)
    assert twins.old_role.kinds == ["link_up"] and twins.peers.get("node-1") is twins.old.listener


def test_a_link_that_is_closing_does_not_keep_a_newcomer_out():
    twins = Twins()
    twins.old.wire.stopped = True
    twins.old.listener.close("stopping", "")
    twins.elapse(0)
    assert twins.new_role.kinds == ["link_up"] and twins.old_role.kinds == ["link_up", "link_down"]
