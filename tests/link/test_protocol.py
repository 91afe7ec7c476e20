"""Two real ends over a memory wire: what roles see, and what a peer that misbehaves does not get to do."""

from __future__ import annotations

import random
import struct

import pytest
from twisted.internet.task import Clock
from twisted.logger import LogLevel, globalLogPublisher
from zope.interface.verify import verifyObject

from iop.interfaces import IGreeter, ILink, ILinkHandler
from iop.link.errors import LinkDown, LocalProtocolError, RemoteProtocolError
from iop.link.frames import KINDS, pack
from iop.link.session import State
from iop.proto import run_pb2
from iop.proto.link_pb2 import Frame, Hello, Ping, RunsReport, Verdicts
from iop.testing.links import LinkPair, OpenGreeter, Recorder


class Pair(LinkPair):
    """With two Recorders."""

    def __init__(self, **options) -> None:
        self.edge, self.node = Recorder(), Recorder()
        super().__init__(self.edge, self.node, options.pop("clock", None) or Clock(), **options)

    def make_ready(self) -> Pair:
        self.dialer.send("runs_report", RunsReport(last=True))
        self.pump()
        self.listener.send("verdicts", Verdicts(last=True))
        self.pump()
        for side in (self.edge, self.node):
            side.told.clear()
        return self


@pytest.fixture
def logged():
    events: list[dict] = []
    globalLogPublisher.addObserver(events.append)
    yield events
    globalLogPublisher.removeObserver(events.append)


def batch(text: str = "x", first_seq: int = 1) -> run_pb2.EventBatch:
    return run_pb2.EventBatch(run_id="r", attempt=1, first_seq=first_seq, events=[run_pb2.RuntimeEvent(output=text)])


def framed(data: bytes) -> bytes:
    return struct.pack("!I", len(data)) + data


def test_the_ends_and_fakes_provide_their_interfaces():
    pair = Pair()
    for link in (pair.listener, pair.dialer):
        assert verifyObject(ILink, link)
    assert verifyObject(ILinkHandler, Recorder())
    assert verifyObject(IGreeter, OpenGreeter(Recorder()))


def test_both_roles_hear_link_up_with_peer_epoch_and_limits():
    pair = Pair()
    assert pair.edge.told == pair.node.told == [("link_up",)]
    assert (pair.listener.peer_id, pair.dialer.peer_id) == ("node-1", "edge")
    assert pair.listener.epoch == pair.dialer.epoch == 1
    assert pair.listener.limits == pair.dialer.limits
    assert pair.listener.remote == "127.0.0.1:40000"


def test_frames_of_one_read_are_handed_over_before_one_read_finished():
    pair = Pair().make_ready()
    for seq in (1, 2, 3):
        pair.dialer.send("event_batch", batch(first_seq=seq))
    pair.pump()
    assert pair.edge.kinds == ["event_batch"] * 3 + ["read_finished"]
    assert [entry[1].first_seq for entry in pair.edge.told[:3]] == [1, 2, 3]


def test_packed_is_the_frame_as_received():
    pair = Pair().make_ready()
    packed = []
    pair.edge.frame_received = lambda link, kind, message, data: packed.append(data)
    sent = pack("event_batch", batch()) + b"\xca\x3e\x02hi"       # a field of a newer peer behind it
    pair.dialer.sendString(sent)
    pair.pump()
    assert packed == [sent]


def test_a_large_payload_arrives_whole():
    pair = Pair().make_ready()
    pair.dialer.send("event_batch", batch("y" * 3_000_000))
    pair.listener.send("run_request", run_pb2.RunRequest(body=b"z" * 3_000_000))
    pair.pump()
    assert pair.edge.told[0] == ("event_batch", batch("y" * 3_000_000))
    assert pair.node.told[0] == ("run_request", run_pb2.RunRequest(body=b"z" * 3_000_000))


def test_an_idle_link_stays_up():
    pair = Pair().make_ready()
    pair.elapse(300)
    assert pair.edge.told == pair.node.told == []
    assert pair.listener.up and pair.dialer.up


def test_a_black_hole_is_noticed_by_both_sides_within_15_s():
    pair = Pair().make_ready()
    pair.wire.stopped = True
    pair.elapse(13)
    for side in (pair.edge, pair.node):
        assert side.kinds == ["link_down"]
        assert isinstance(side.told[0][1], LinkDown)
    assert pair.peers.get("node-1") is None


def test_a_link_up_handler_that_raises_closes_its_link():
    class Broken(Recorder):
        def link_up(self, link):
            super().link_up(link)
            raise RuntimeError("a fault")

    edge, node = Broken(), Recorder()
    LinkPair(edge, node, Clock())
    assert edge.kinds == ["link_up", "link_down"]
    assert node.kinds == ["link_up", "link_down"]


@pytest.mark.parametrize("where", ["frame_received", "read_finished"])
def test_a_handler_that_raises_closes_its_link_as_internal_error_and_no_other(where, logged):
    clock = Clock()
    pair, other = Pair(clock=clock).make_ready(), Pair(clock=clock, peer_id="node-2").make_ready()

    def fault(*arguments):
        raise RuntimeError("a fault")

    setattr(pair.edge, where, fault)
    pair.dialer.send("event_batch", batch())
    pair.pump()
    assert [entry for entry in pair.edge.kinds if entry == "link_down"] == ["link_down"]
    assert "internal_error" in str(pair.node.told[-1][1])
    assert "a fault" not in str(pair.node.told[-1][1])
    assert any(event["log_level"] is LogLevel.critical and "log_failure" in event for event in logged)
    other.dialer.send("event_batch", batch())
    other.pump()
    assert other.edge.kinds == ["event_batch", "read_finished"]


def test_a_link_down_handler_that_raises_is_logged(logged):
    pair = Pair()

    def fault(*arguments):
        raise RuntimeError("a fault")

    pair.edge.link_down = fault
    pair.cut()
    assert any("log_failure" in event for event in logged)


@pytest.mark.parametrize("end", ["cut", "close", "abort", "broken", "dead"])
def test_link_down_is_told_exactly_once(end):
    pair = Pair().make_ready()
    {"cut": pair.cut,
     "close": lambda: pair.listener.close("stopping", "bye"),
     "abort": lambda: pair.listener.abort(LinkDown()),
     "broken": lambda: pair.dialer.sendString(b"\xff"),
     "dead": lambda: setattr(pair.wire, "stopped", True)}[end]()
    pair.elapse(20)
    pair.wire.stopped = False
    pair.cut(), pair.listener.close("x", "y"), pair.listener.abort(LinkDown()), pair.elapse(20)
    assert pair.edge.kinds.count("link_down") == 1
    assert pair.node.kinds.count("link_down") == 1
    assert pair.clock.getDelayedCalls() == []


def test_link_down_is_not_told_where_link_up_was_not():
    pair = Pair(greet=False)
    pair.cut()
    assert pair.edge.told == pair.node.told == []


def test_close_says_goodbye_with_its_reason():
    pair = Pair().make_ready()
    pair.listener.close("draining", "The edge is restarting.")
    pair.pump()
    assert pair.node.kinds == ["link_down"]
    assert "draining" in str(pair.node.told[0][1]) and "The edge is restarting." in str(pair.node.told[0][1])


def test_close_aborts_after_5_s_where_the_peer_takes_nothing():
    pair = Pair().make_ready()
    pair.wire.stopped = True
    pair.listener.close("stopping", "bye")
    pair.elapse(4)
    assert pair.edge.told == []
    pair.elapse(2)
    assert pair.edge.kinds == ["link_down"]


def test_nothing_is_handed_over_after_close():
    pair = Pair().make_ready()
    pair.dialer.send("event_batch", batch())
    pair.listener.close("stopping", "bye")
    pair.dialer.sendString(b"\xff\xff")
    pair.pump()
    assert pair.edge.kinds == ["link_down"]


def test_nothing_more_of_a_read_is_handed_over_once_the_role_has_closed():
    pair = Pair().make_ready()
    seen = []
    pair.edge.frame_received = lambda link, kind, message, packed: (seen.append(kind), link.close("enough", ""))
    for _ in range(3):
        pair.dialer.send("event_batch", batch())
    pair.pump()
    assert seen == ["event_batch"]


def test_sending_on_a_closed_link_does_nothing():
    pair = Pair().make_ready()
    pair.cut()
    pair.dialer.send("event_batch", batch())
    pair.dialer.send("hello", Hello())


def test_sending_out_of_state_is_our_own_fault_and_leaves_the_link_alone():
    pair = Pair()
    with pytest.raises(LocalProtocolError):
        pair.dialer.send("event_batch", batch())
    with pytest.raises(LocalProtocolError):
        pair.dialer.send("run_request", run_pb2.RunRequest())
    pair.make_ready()
    assert pair.dialer.up


# --- peers that misbehave ---------------------------------------------------------------------------------------------

GARBAGE = {
    "TLS ClientHello": (bytes.fromhex("16030100c8010000c40303") + bytes(200), "frame_too_large"),
    "HTTP": (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "frame_too_large"),
    "SSH": (b"SSH-2.0-OpenSSH_9.6\r\n", "frame_too_large"),
    "largest length": (b"\xff\xff\xff\xff", "frame_too_large"),
    "just over 4 KiB": (struct.pack("!I", 4097), "frame_too_large"),
    "no frame": (framed(b"\xff\xff\xff"), "decode_error"),
    "an empty frame": (framed(b""), "out_of_state"),
    "a ping before hello": (framed(pack("ping", Ping())), "out_of_state"),
    "two hellos": (framed(pack("hello", Hello(peer_id="n", protocol=1))) * 2, "out_of_state"),
}


@pytest.mark.parametrize("what", GARBAGE)
def test_garbage_is_a_typed_close_that_is_counted_and_logged(what, logged):
    data, code = GARBAGE[what]
    pair = Pair(greet=False)
    pair.wire.ends[1].sent.clear()
    pair.wire.ends[1].sent += data
    pair.pump()
    assert dict(pair.factory.protocol_errors) == {code: 1}
    assert [event["code"] for event in logged if event.get("code")][:1] == [code]
    assert pair.wire.ends[0].disconnected
    assert pair.factory.stop().called        # nothing is left of it
    assert "link_up" not in pair.edge.kinds or what == "two hellos"


def test_a_tls_client_on_a_plain_port_is_named_in_the_log(logged):
    test_garbage_is_a_typed_close_that_is_counted_and_logged("TLS ClientHello", logged)
    assert any("TLS ClientHello" in event.get("reason", "") for event in logged)


def test_a_frame_over_1_mib_is_refused_by_its_header_alone():
    pair = Pair().make_ready()
    pair.dialer.transport.write(struct.pack("!I", 1024 * 1024 + 1))
    pair.pump()
    assert pair.edge.kinds == ["link_down"]
    assert pair.edge.told[0][1].code == "frame_too_large"
    assert "frame_too_large" in str(pair.node.told[0][1])


def test_a_frame_of_1_mib_is_taken():
    pair = Pair().make_ready()
    request = batch("x" * (1024 * 1024 - 100))
    pair.dialer.sendString(pack("event_batch", request))
    pair.pump()
    assert pair.edge.told[0] == ("event_batch", request)


def test_the_limit_of_a_frame_grows_only_with_welcome():
    pair = Pair(greet=False)
    assert pair.listener.MAX_LENGTH == pair.dialer.MAX_LENGTH == 4096
    pair.pump()
    assert pair.listener.MAX_LENGTH == pair.dialer.MAX_LENGTH == 1024 * 1024


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"ping", "pong", "goodbye", "part", "runs_report"}))
def test_what_a_dialer_may_not_say_before_ready_never_reaches_the_role(kind):
    pair = Pair()
    pair.edge.told.clear()
    pair.dialer.sendString(pack(kind, type(getattr(Frame(), kind))()))
    pair.pump()
    assert pair.edge.kinds == ["link_down"]
    assert isinstance(pair.edge.told[0][1], RemoteProtocolError)
    assert dict(pair.factory.protocol_errors) == {"out_of_state": 1}


def test_random_bytes_before_and_after_the_greeting_end_typed_and_leave_others_alone():
    chance = random.Random(7)
    clock = Clock()
    other = Pair(clock=clock, peer_id="bystander").make_ready()
    for number in range(300):
        pair = Pair(clock=clock, peer_id=f"n{number}")
        if number % 2:
            pair.make_ready()
        pair.edge.told.clear()
        size = chance.randrange(1, 400)
        pair.dialer.transport.write(framed(chance.randbytes(size)) if number % 3 else chance.randbytes(size))
        pair.pump()
        pair.cut()
        assert [kind for kind in pair.edge.kinds if kind == "link_down"] == ["link_down"]
        assert isinstance(pair.edge.told[-1][1], (RemoteProtocolError, LinkDown))
    other.dialer.send("event_batch", batch())
    other.pump()
    assert other.edge.kinds == ["event_batch", "read_finished"]


def test_a_peer_cut_in_the_middle_of_a_transfer_leaves_nothing_behind():
    pair = Pair().make_ready()
    strings = pair.dialer.session.encode("event_batch", batch("x" * 1_000_000))
    pair.dialer.sendString(strings[0])
    pair.pump()
    pair.cut()
    assert pair.listener.session.state is State.CLOSED
    assert pair.listener.session._transfers._pieces == {}
