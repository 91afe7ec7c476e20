"""The dialer on a reactor made of memory."""

from __future__ import annotations

import itertools

import pytest
from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.error import ConnectionDone, ConnectionRefusedError, NoRouteError, TimeoutError
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.python.failure import Failure

from iop.errors import ConfigError
from iop.link.dial import LinkDialer
from iop.link.errors import LinkDown, LinkRefused, RemoteProtocolError
from iop.link.frames import pack
from iop.link.sweep import Sweep
from iop.proto.link_pb2 import Frame, Hello, Reject, RunsReport, Welcome
from iop.testing.links import Recorder


class Resolver:
    def __init__(self, *answers) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    def resolveHostName(self, receiver, hostName, portNumber=0, addressTypes=None, transportSemantics="TCP"):
        self.asked.append(hostName)
        receiver.resolutionBegan(None)
        for host in self.answers.pop(0):
            receiver.addressResolved((IPv6Address if ":" in host else IPv4Address)("TCP", host, 0))
        receiver.resolutionComplete()


class Transport(StringTransport):
    aborting = False

    def abortConnection(self) -> None:
        self.aborting = True


class World:
    def __init__(self, chance: float = 1.0) -> None:
        self.reactor = MemoryReactorClock()
        self.role = Recorder()
        self.failures = []
        self.dialer = LinkDialer(lambda: Hello(peer_id="n", token="secret", protocol=1), self.role, self.reactor,
                                 self.failures.append, chance=lambda: chance)

    def start(self, host="127.0.0.1", tls=None) -> World:
        self.dialer.start(self.reactor, host, 7410, tls)
        return self

    @property
    def tries(self):
        return self.reactor.tcpClients

    @property
    def connector(self):
        return self.reactor.connectors[0]

    def fail(self) -> float:
        """The try under way fails; the delay until the next."""
        self.dialer.clientConnectionFailed(self.connector, Failure(ConnectionRefusedError()))
        return self.due()

    def due(self) -> float:
        (call,) = self.reactor.getDelayedCalls()
        return call.getTime() - self.reactor.seconds()

    def connected(self):
        self.link = self.dialer.buildProtocol(None)
        self.transport = Transport()
        self.link.makeConnection(self.transport)
        return self.link

    def hear(self, kind, message) -> None:
        string = pack(kind, message)
        self.link.dataReceived(len(string).to_bytes(4, "big") + string)

    def lose(self) -> float:
        self.link.connectionLost(Failure(ConnectionDone()))
        self.dialer.clientConnectionLost(self.connector, Failure(ConnectionDone()))
        return self.due()


def test_hello_is_the_first_thing_said():
    world = World().start()
    world.connected()
    assert Frame.FromString(world.transport.value()[4:]).hello.token == "secret"


def test_the_delay_grows_to_30_s_and_has_jitter():
    full, none = World(1.0).start(), World(0.0).start()
    longest, shortest = [], []
    for _ in range(14):
        longest.append(full.fail())
        full.reactor.advance(longest[-1])
        shortest.append(none.fail())
        none.reactor.advance(shortest[-1])
    assert longest[0] == shortest[0] == 0.5
    assert longest[-1] == pytest.approx(30.0) and shortest[-1] == pytest.approx(15.0)
    assert all(early <= late + 1e-6 for early, late in itertools.pairwise(longest))


def test_each_failed_try_is_told():
    world = World().start()
    world.fail()
    assert isinstance(world.failures[0], LinkDown)
    assert world.failures[0].message == "Nothing listens at 127.0.0.1:7410; is the edge running?"


@pytest.mark.parametrize(("error", "sentence"), [
    (TimeoutError(), "127.0.0.1:7410 does not answer within 10 s; is it on, and does a firewall stand between?"),
    (NoRouteError(113, "No route to host"), "127.0.0.1:7410 cannot be reached: No route to host"),
])
def test_why_there_is_no_connection_is_a_sentence(error, sentence):
    world = World().start()
    world.dialer.clientConnectionFailed(world.connector, Failure(error))
    assert world.failures[0].message == sentence


def test_the_delay_is_reset_by_welcome_and_not_by_a_connection():
    world = World().start()
    for _ in range(6):
        world.reactor.advance(world.fail())
    world.connected()
    assert world.lose() > 5
    world.reactor.advance(30)
    world.connected()
    world.hear("welcome", Welcome(peer_id="edge", epoch=3))
    assert world.role.kinds == ["link_up"] and world.dialer.link is world.link
    assert world.lose() == 0.5
    assert world.role.kinds == ["link_up", "link_down"] and world.dialer.link is None


@pytest.mark.parametrize(("reject", "shortest_s"), [
    (Reject(code="auth_failed", message="no"), 60),
    (Reject(code="auth_failed", message="no", retry_after_s=1), 60),
    (Reject(code="auth_failed", message="no", retry_after_s=90), 90),
    (Reject(code="auth_failed", message="no", retry_after_s=float("inf")), 60),
    (Reject(code="auth_failed", message="no", retry_after_s=float("nan")), 60),
    (Reject(code="auth_failed", message="no", retry_after_s=-5), 60),
    (Reject(code="duplicate_node", message="no", retry_after_s=30), 30),
    (Reject(code="duplicate_node"), 30),
    (Reject(), 60),
])
@pytest.mark.parametrize("chance", [0.0, 1.0])
def test_a_refused_dialer_goes_to_the_slow_loop(reject, shortest_s, chance):
    world = World(chance).start()
    world.connected()
    world.hear("reject", reject)
    assert world.failures[0].retry_after_s == shortest_s
    assert isinstance(world.failures[0], LinkRefused) and world.failures[0].code == (reject.code or "link_refused")
    delay_s = world.lose()
    assert shortest_s <= delay_s <= shortest_s * 1.2
    assert len(world.failures) == 1 and world.role.told == []


def test_a_refusal_is_forgotten_after_its_try():
    world = World().start()
    world.connected()
    world.hear("reject", Reject(code="auth_failed"))
    world.reactor.advance(world.lose())
    assert world.fail() <= 1


def test_a_dialer_that_is_hurried_tries_at_once_and_once():
    world = World().start()
    dialed = []
    world.connector.connect = lambda: dialed.append(world.reactor.seconds())
    world.dialer.hurry()                 # a try is under way
    assert dialed == []
    world.connected()
    world.hear("reject", Reject(code="auth_failed"))
    assert world.lose() >= 60
    world.dialer.hurry()
    world.dialer.hurry()
    assert dialed == [world.reactor.seconds()] and world.reactor.getDelayedCalls() == []
    world.fail()
    world.dialer.stop()
    world.dialer.hurry()
    assert len(dialed) == 1


def test_a_listener_that_never_greets_is_left():
    world = World().start()
    world.connected()
    world.reactor.advance(15)
    assert "did not greet" in world.failures[0].message
    assert world.transport.aborting


def test_a_listener_that_talks_nonsense_is_told_as_such():
    world = World().start()
    world.connected()
    world.link.dataReceived(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    world.lose()
    assert [type(failure) for failure in world.failures] == [RemoteProtocolError]
    assert world.failures[0].code == "frame_too_large"


@pytest.mark.parametrize("host", ["192.0.2.7", "2001:db8::1", "edge.example", "0.0.0.0", "localhost.example"])
def test_plain_tcp_to_another_machine_is_refused_before_a_byte_is_sent(host):
    world = World()
    with pytest.raises(ConfigError):
        world.start(host)
    assert world.tries == [] and world.reactor.getDelayedCalls() == []


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1"])
def test_plain_tcp_to_loopback_is_dialed(host):
    assert World().start(host).tries[0][:2] == (host, 7410)


def test_a_name_is_looked_up_before_each_try_and_its_addresses_take_turns():
    world = World()
    world.reactor.nameResolver = resolver = Resolver(["127.0.0.1", "::1"], ["127.0.0.1", "::1"], ["127.0.0.5"])
    world.start("localhost")
    assert world.tries[0][0] == "127.0.0.1"
    world.connector.connect = lambda: None
    world.reactor.advance(world.fail())
    assert world.connector.host == "::1"
    world.reactor.advance(world.fail())
    assert world.connector.host == "127.0.0.5"
    assert resolver.asked == ["localhost"] * 3


def test_localhost_that_is_elsewhere_is_not_dialed_plain():
    world = World()
    world.reactor.nameResolver = Resolver(["192.0.2.7"], ["127.0.0.1"])
    world.start("localhost")
    assert world.tries == [] and isinstance(world.failures[0], ConfigError)
    world.reactor.advance(world.due())
    assert world.tries[0][0] == "127.0.0.1"


def test_a_name_without_an_address_is_tried_again():
    world = World()
    world.reactor.nameResolver = Resolver([], ["127.0.0.1"])
    world.start("localhost")
    assert "has no address" in world.failures[0].message
    world.reactor.advance(world.due())
    assert len(world.tries) == 1


def test_stop_says_goodbye_and_dials_no_more():
    world = World().start()
    world.connected()
    world.hear("welcome", Welcome(peer_id="edge", epoch=1))
    world.transport.clear()
    stopped = world.dialer.stop()
    assert Frame.FromString(world.transport.value()[4:]).goodbye.code == "stopping"
    assert not stopped.called
    world.link.connectionLost(Failure(ConnectionDone()))
    world.dialer.clientConnectionLost(world.connector, Failure(ConnectionDone()))
    assert stopped.called and world.reactor.getDelayedCalls() == []
    assert world.role.kinds == ["link_up", "link_down"]


def test_stop_aborts_a_link_whose_peer_takes_nothing():
    world = World().start()
    world.connected()
    world.hear("welcome", Welcome(peer_id="edge", epoch=1))
    world.dialer.stop()
    assert not world.transport.aborting
    world.reactor.pump([1] * 6)
    assert world.transport.aborting


@pytest.mark.parametrize("moment", ["before", "waiting", "connected"])
def test_stop_before_the_greeting_leaves_nothing_running(moment):
    world = World().start()
    if moment == "waiting":
        world.fail()
    elif moment == "connected":
        world.connected()
    stopped = world.dialer.stop()
    assert stopped.called
    assert world.reactor.getDelayedCalls() == [] and world.role.told == []


def test_stop_before_start_is_fine():
    assert World().dialer.stop().called


def test_the_dialer_sends_pings_on_a_quiet_link_and_aborts_a_dead_one():
    world = World().start()
    world.connected()
    world.hear("welcome", Welcome(peer_id="edge", epoch=1))
    world.link.send("runs_report", RunsReport(last=True))
    world.transport.clear()
    world.reactor.pump([1] * 6)
    assert Frame.FromString(world.transport.value()[4:]).WhichOneof("kind") == "ping"
    world.reactor.pump([1] * 8)
    assert world.transport.aborting and world.role.kinds == ["link_up", "link_down"]


def test_a_sweep_goes_on_when_one_of_its_members_fails():
    clock = MemoryReactorClock()
    sweep = Sweep(clock)

    class Member:
        def __init__(self, fault):
            self.seen, self.fault = 0, fault

        def sweep(self, now_s):
            self.seen += 1
            if self.fault:
                raise RuntimeError("a fault")

    broken, whole = Member(True), Member(False)
    sweep.add(broken), sweep.add(whole)
    clock.pump([1] * 3)
    assert (broken.seen, whole.seen) == (3, 3)
    sweep.discard(broken), sweep.discard(whole)
    assert clock.getDelayedCalls() == []
