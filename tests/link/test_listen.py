"""Arrivals: deadlines, bounds, refusals, counters."""

from __future__ import annotations

import pytest
from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.defer import Deferred
from twisted.internet.protocol import Protocol
from twisted.internet.task import Clock
from zope.interface import implementer

from iop.errors import AuthFailed, HistoryUnavailable
from iop.interfaces import IGreeter
from iop.link.errors import LinkRefused
from iop.link.frames import pack
from iop.link.limits import default_limits
from iop.link.listen import LinkListener
from iop.link.peers import Peers
from iop.link.seal import sealed
from iop.proto.link_pb2 import Frame, Hello
from iop.testing.links import LinkPair, OpenGreeter, Recorder, Wire


class Stranger(Protocol):
    """A peer made of bytes."""

    def __init__(self) -> None:
        self.got = b""
        self.gone = False

    def dataReceived(self, data: bytes) -> None:
        self.got += data

    def connectionLost(self, reason) -> None:
        self.gone = True

    def say(self, kind: str, message) -> None:
        string = pack(kind, message)
        self.transport.write(len(string).to_bytes(4, "big") + string)

    @property
    def answer(self) -> Frame:
        return Frame.FromString(self.got[4:])


@implementer(IGreeter)
class SlowGreeter:
    def __init__(self) -> None:
        self.asked: list[Deferred] = []

    def greet(self, hello, remote):
        self.asked.append(Deferred())
        return self.asked[-1]


@implementer(IGreeter)
class RefusingGreeter:
    def __init__(self, error) -> None:
        self.error = error

    def greet(self, hello, remote):
        raise self.error


class World:
    def __init__(self, greeter=None, **options) -> None:
        self.clock = Clock()
        self.role = Recorder()
        self.peers = Peers(self.clock)
        self.listener = LinkListener("edge", greeter or OpenGreeter(self.role), self.peers, self.clock, **options)
        self.wires: list[Wire] = []

    def connect(self, address=None) -> Stranger | None:
        link = self.listener.buildProtocol(address)
        if link is None:
            return None
        stranger = Stranger()
        self.wires.append(Wire(link, stranger))
        self.wires[-1].connect()
        return stranger

    def pump(self) -> None:
        self.clock.advance(0)
        while any([wire.pump() for wire in self.wires]):
            self.clock.advance(0)

    def elapse(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.pump()


HELLO = Hello(peer_id="node-1", token="t", protocol=1)


def test_a_connection_that_says_nothing_is_closed_after_5_s():
    world = World()
    stranger = world.connect()
    world.elapse(4.9)
    assert not stranger.gone
    world.elapse(0.2)
    assert world.listener.protocol_errors["handshake_timeout"] == 1
    assert stranger.answer.reject.code == "handshake_timeout"
    world.elapse(0)
    assert stranger.gone


def test_bytes_that_drip_do_not_move_the_deadline():
    world = World()
    stranger = world.connect()
    for _ in range(6):
        stranger.transport.write(b"\0")
        world.elapse(0.9)
    assert stranger.gone and world.clock.getDelayedCalls() == []


def test_a_greeter_that_never_answers_is_not_waited_for():
    world = World(SlowGreeter())
    stranger = world.connect()
    stranger.say("hello", HELLO)
    world.pump()
    world.elapse(5.1)
    world.elapse(0)
    assert stranger.gone
    assert world.clock.getDelayedCalls() == []


def test_a_greeting_that_comes_after_the_peer_has_left_does_nothing():
    greeter = SlowGreeter()
    world = World(greeter)
    stranger = world.connect()
    stranger.say("hello", HELLO)
    world.pump()
    stranger.transport.loseConnection()
    world.pump()
    greeter.asked[0].callback(world.role)
    assert world.role.told == [] and world.peers.get("node-1") is None


def test_at_most_64_connections_wait_for_their_greeting():
    world = World()
    strangers = [world.connect() for _ in range(65)]
    assert strangers[63] is not None and strangers[64] is None
    assert world.listener.refused["too_many_connections"] == 1
    strangers[0].say("hello", HELLO)
    world.pump()
    assert world.connect() is not None


def test_at_most_8_from_one_source_but_loopback_is_exempt():
    world = World()
    far = IPv4Address("TCP", "192.0.2.7", 5)
    assert all(world.connect(far) for _ in range(8))
    assert world.connect(far) is None
    assert world.connect(IPv4Address("TCP", "192.0.2.8", 5)) is not None
    assert all(world.connect(IPv4Address("TCP", "127.0.0.1", 5)) for _ in range(20))
    assert dict(world.listener.refused) == {"too_many_from_source": 1}


def test_a_source_is_free_again_when_its_connections_are_gone():
    world = World()
    far = IPv6Address("TCP", "2001:db8::1", 5)
    for _ in range(3):
        strangers = [world.connect(far) for _ in range(8)]
        for stranger in strangers:
            stranger.transport.loseConnection()
        world.pump()
    assert world.clock.getDelayedCalls() == [] and not world.listener.refused


@pytest.mark.parametrize(("error", "code", "retry_s"), [
    (AuthFailed(), "auth_failed", 60),
    (HistoryUnavailable(), "history_unavailable", 60),
    (LinkRefused("later", code="busy", retry_after_s=120), "busy", 120),
])
def test_a_refusal_carries_code_message_and_time_and_is_counted(error, code, retry_s):
    world = World(RefusingGreeter(error))
    stranger = world.connect()
    stranger.say("hello", HELLO)
    world.pump()
    reject = stranger.answer.reject
    assert (reject.code, reject.message, reject.retry_after_s) == (code, error.message, retry_s)
    assert dict(world.listener.refused) == {code: 1}
    assert stranger.gone and not world.role.told


@pytest.mark.unhandled_errors_allowed
def test_a_greeter_that_fails_inside_refuses_without_telling_why():
    world = World(RefusingGreeter(RuntimeError("secret details")))
    stranger = world.connect()
    stranger.say("hello", HELLO)
    world.pump()
    assert stranger.answer.reject.code == "internal_error"
    assert b"secret details" not in stranger.got


@pytest.mark.parametrize(("hello", "code"), [
    (Hello(peer_id="n"), "protocol_version"),
    (Hello(peer_id="", protocol=1), "invalid_hello"),
    (Hello(peer_id="a/b", protocol=1), "invalid_hello"),
    (Hello(peer_id="n" * 65, protocol=1), "invalid_hello"),
    (Hello(peer_id="n\n", protocol=1), "invalid_hello"),
])
def test_a_hello_that_cannot_be_is_refused_before_the_greeter_is_asked(hello, code):
    greeter = SlowGreeter()
    world = World(greeter)
    stranger = world.connect()
    stranger.say("hello", hello)
    world.pump()
    assert stranger.answer.reject.code == code
    assert greeter.asked == []


def test_a_newer_dialer_is_answered_with_the_version_spoken_here():
    world = World()
    stranger = world.connect()
    stranger.say("hello", Hello(peer_id="n", protocol=7))
    world.pump()
    assert stranger.answer.welcome.protocol == 1


def test_welcome_names_the_edge_the_epoch_and_the_limits():
    world = World(limits=default_limits(run_window_bytes=5000))
    stranger = world.connect()
    stranger.say("hello", HELLO)
    world.pump()
    welcome = stranger.answer.welcome
    assert (welcome.peer_id, welcome.epoch, welcome.limits.run_window_bytes) == ("edge", 1, 5000)
    assert world.peers.get("node-1").peer_id == "node-1"


def test_who_has_left_is_no_peer_any_more():
    world = World()
    strangers = [world.connect() for _ in range(3)]
    for number, stranger in enumerate(strangers):
        stranger.say("hello", Hello(peer_id=f"n{number}", protocol=1))
    world.pump()
    assert all(world.peers.get(f"n{number}") for number in range(3))
    strangers[0].transport.loseConnection()
    world.pump()
    assert [world.peers.get(f"n{number}") is None for number in range(3)] == [True, False, False]


def test_one_timer_serves_all_links():
    world = World()
    for number in range(50):
        world.connect().say("hello", Hello(peer_id=f"n{number}", protocol=1))
    world.pump()
    assert all(world.peers.get(f"n{number}") for number in range(50))
    assert len(world.clock.getDelayedCalls()) == 1


def test_stop_closes_links_and_arrivals_and_takes_no_more():
    world = World()
    linked, arriving = world.connect(), world.connect()
    linked.say("hello", HELLO)
    world.pump()
    linked.got = b""
    stopped = world.listener.stop("stopping", "The edge is stopping.")
    world.pump()
    assert stopped.called
    assert linked.gone and linked.answer.goodbye.code == "stopping"
    assert arriving.gone and arriving.answer.reject.code == "stopping"
    assert world.connect() is None
    assert world.clock.getDelayedCalls() == []


def test_stop_leaves_the_links_of_another_listener_alone():
    clock = Clock()
    peers, role = Peers(clock), Recorder()
    one, other = (LinkPair(role, Recorder(), clock, peers=peers, peer_id=name) for name in ("n1", "n2"))
    stopped = one.factory.stop()
    one.pump(), other.pump()
    assert stopped.called and not one.listener.up and other.listener.up


def test_stop_with_nothing_open_fires_at_once():
    assert World().listener.stop().called


def test_a_source_that_sends_garbage_is_kept_out_for_30_s_and_others_are_not():
    world = World()
    far, other = IPv4Address("TCP", "192.0.2.7", 5), IPv4Address("TCP", "192.0.2.8", 5)
    world.connect(far).transport.write(b"GET / HTTP/1.1")
    world.pump()
    assert world.connect(far) is None and world.connect(other) is not None
    assert world.listener.refused["penalty"] == 1
    world.clock.advance(30.1)
    assert world.connect(far) is not None


def test_garbage_from_this_machine_keeps_nobody_out():
    world = World()
    for _ in range(50):
        world.connect().transport.write(b"GET / HTTP/1.1")
        world.pump()
    assert world.connect() is not None



def test_a_hello_that_was_damaged_on_its_way_is_no_fault_of_the_peer_which_may_come_again_at_once():
    world = World()
    stranger = world.connect()
    wire = bytearray(sealed(pack("hello", HELLO)))
    wire[8] ^= 1
    stranger.transport.write(bytes(wire))
    world.pump()
    assert stranger.gone and stranger.got == b"" and world.listener.protocol_errors == {"damaged_frame": 1}
