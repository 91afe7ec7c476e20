"""The rules of the conversation, on the pure object."""

from __future__ import annotations

import itertools
import random

import pytest

from iop.errors import TooLarge
from iop.link import caps
from iop.link import session as session_module
from iop.link.caps import require_native_protobuf
from iop.link.errors import LocalProtocolError, ProtocolError, RemoteProtocolError
from iop.link.frames import KINDS, pack
from iop.link.limits import default_limits
from iop.link.session import DIALER, GREETED, LISTENER, OVER, RECEIVES, SENDS, Session, State
from iop.proto import node_pb2, run_pb2
from iop.proto.link_pb2 import Frame, Goodbye, Hello, Part, Ping, Reject, RunReport, RunsReport, Verdicts, Welcome

FILLED = {"runs_report": RunsReport(last=True), "verdicts": Verdicts(last=True), "part": Part(transfer_id=1, data=b"x")}


def message_of(kind: str):
    return FILLED.get(kind) or getattr(Frame(), kind).__class__()


def in_state(role: str, state: State) -> Session:
    """A session led to a state by a conversation."""
    session = Session(role, default_limits())
    listens = role == LISTENER
    steps = [("hello", Hello(peer_id="n"), not listens), ("welcome", Welcome(epoch=1), listens),
             ("runs_report", RunsReport(last=True), not listens), ("verdicts", Verdicts(last=True), listens),
             ("goodbye", Goodbye(), True)]
    order = [State.NEW, State.WAITING, State.AUTHENTICATED, State.REPORTED, State.READY, State.DRAINING]
    if state is State.CLOSED:
        session.close()
        return session
    for kind, message, sends in steps[:order.index(state)]:
        if sends:
            session.encode(kind, message)
        else:
            session.receive(pack(kind, message))
    assert session.state is state
    return session


ROLES = (LISTENER, DIALER)
EVERYTHING = list(itertools.product(ROLES, State, KINDS))


@pytest.mark.parametrize(("role", "state", "kind"), EVERYTHING)
def test_each_kind_received_in_each_state_is_handed_over_or_refused_by_the_table(role, state, kind):
    session = in_state(role, state)
    data = pack(kind, message_of(kind))
    if kind in RECEIVES.get((role, state), ()):
        if kind == "verdicts" and state is State.AUTHENTICATED:
            with pytest.raises(RemoteProtocolError):
                session.receive(data)
        else:
            received = session.receive(data)
            assert received is None if kind == "part" else received[0] == kind
    elif state in OVER:
        assert session.receive(data) is None
    else:
        with pytest.raises(RemoteProtocolError) as refusal:
            session.receive(data)
        assert refusal.value.code == "out_of_state"


@pytest.mark.parametrize(("role", "state", "kind"), EVERYTHING)
def test_each_kind_sent_in_each_state_is_encoded_or_refused_by_the_table(role, state, kind):
    session = in_state(role, state)
    if state in OVER:
        assert session.encode(kind, message_of(kind)) == []
    elif kind in SENDS.get((role, state), ()) and not (kind == "verdicts" and state is State.AUTHENTICATED):
        assert session.encode(kind, message_of(kind)) == [pack(kind, message_of(kind))]
    else:
        with pytest.raises(LocalProtocolError):
            session.encode(kind, message_of(kind))


def test_what_a_side_may_send_when_both_are_ready_is_what_the_other_may_receive():
    for state in (State.REPORTED, State.READY):
        assert SENDS[(DIALER, state)] == RECEIVES[(LISTENER, state)]
        assert SENDS[(LISTENER, state)] == RECEIVES[(DIALER, state)]


def test_a_run_before_hello_is_refused():
    session = Session(LISTENER, default_limits())
    with pytest.raises(RemoteProtocolError):
        session.receive(pack("run_request", run_pb2.RunRequest()))


def test_the_listener_does_not_end_the_verdicts_before_the_report_has_ended():
    session = in_state(LISTENER, State.AUTHENTICATED)
    session.encode("verdicts", Verdicts())
    with pytest.raises(LocalProtocolError):
        session.encode("verdicts", Verdicts(last=True))


def test_late_verdicts_reach_a_ready_dialer_and_leave_it_ready():
    session = in_state(DIALER, State.READY)
    assert session.receive(pack("verdicts", Verdicts(last=True)))[0] == "verdicts"
    assert session.state is State.READY


@pytest.mark.parametrize(("role", "state"), list(itertools.product(ROLES, sorted(GREETED, key=str))))
def test_a_kind_from_a_newer_peer_is_ignored_once_greeted(role, state):
    unknown = b"\xca\x3e\x02hi"      # field 1001, two bytes
    assert in_state(role, state).receive(unknown) is None


@pytest.mark.parametrize("role", ROLES)
def test_an_unknown_kind_before_the_greeting_is_refused(role):
    with pytest.raises(RemoteProtocolError):
        Session(role, default_limits()).receive(b"\xca\x3e\x02hi")


@pytest.mark.parametrize(("role", "state"), list(itertools.product(ROLES, State)))
def test_random_frames_raise_nothing_but_typed_errors(role, state):
    chance = random.Random(f"{role}{state}")
    good = [pack(kind, message_of(kind)) for kind in KINDS]
    for _ in range(2000):
        session = in_state(role, state)
        data = bytearray(chance.choice(good) if chance.random() < 0.5 else chance.randbytes(chance.randrange(80)))
        if data:
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        try:
            received = session.receive(bytes(data))
        except ProtocolError as error:
            assert error.code
        else:
            assert received is None or received[0] in RECEIVES[(role, state)]


# --- sizes ------------------------------------------------------------------------------------------------------------


def test_a_hello_over_4_kib_is_not_sent():
    session = Session(DIALER, default_limits())
    with pytest.raises(TooLarge):
        session.encode("hello", Hello(labels={str(number): "x" * 50 for number in range(100)}))
    assert session.state is State.NEW


@pytest.mark.parametrize("role", ROLES)
def test_frames_may_be_4_kib_before_welcome_and_1_mib_after(role):
    assert in_state(role, State.WAITING).max_length == 4096
    assert in_state(role, State.AUTHENTICATED).max_length == 1024 * 1024


def test_the_dialer_takes_over_the_limits_that_welcome_names():
    session = in_state(DIALER, State.WAITING)
    session.receive(pack("welcome", Welcome(limits=default_limits(frame_bytes=8192, part_bytes=4000, dead_after_s=30))))
    assert (session.max_length, session.limits.part_bytes, session.limits.dead_after_s) == (8192, 4000, 30)


def test_absurd_limits_in_a_welcome_are_bounded():
    session = in_state(DIALER, State.WAITING)
    offered = Welcome()
    offered.limits.frame_bytes = 2**31
    offered.limits.part_bytes = 2**31
    offered.limits.transfer_bytes = 2**63
    offered.limits.ping_after_s = float("nan")
    offered.limits.dead_after_s = float("-inf")
    session.receive(pack("welcome", offered))
    limits = session.limits
    assert limits.frame_bytes == 1024 * 1024
    assert limits.part_bytes < limits.frame_bytes
    assert limits.transfer_bytes == 2**30
    assert limits.ping_after_s == 5.0
    assert limits.dead_after_s > limits.ping_after_s


def big_request(size: int) -> run_pb2.RunRequest:
    return run_pb2.RunRequest(run_id="r", body=bytes(range(256)) * (size // 256))


@pytest.mark.parametrize(("sender", "kind", "message"), [
    (LISTENER, "run_request", big_request(1_000_000)),
    (DIALER, "event_batch", run_pb2.EventBatch(events=[run_pb2.RuntimeEvent(output="é" * 600_000)])),
])
def test_a_payload_over_256_kib_travels_in_parts_both_ways(sender, kind, message):
    near, far = in_state(sender, State.READY), in_state(DIALER if sender == LISTENER else LISTENER, State.READY)
    strings = near.encode(kind, message)
    assert len(strings) == -(-len(pack(kind, message)) // (256 * 1024))
    assert all(len(string) <= 256 * 1024 + 64 for string in strings)
    received = [far.receive(string) for string in strings]
    assert received[:-1] == [None] * (len(strings) - 1)
    assert received[-1] == (kind, message, pack(kind, message))


def test_two_transfers_may_be_interleaved():
    near, far = in_state(LISTENER, State.READY), in_state(DIALER, State.READY)
    one, two = near.encode("run_request", big_request(600_000)), near.encode("run_request", big_request(700_000))
    received = [far.receive(string) for pair in itertools.zip_longest(one, two) for string in pair if string]
    assert [entry[0] for entry in received if entry] == ["run_request"] * 2


def test_a_payload_over_the_largest_transfer_is_not_sent():
    session = in_state(LISTENER, State.READY)
    session.limits.transfer_bytes = 1_000_000
    with pytest.raises(TooLarge):
        session.encode("run_request", big_request(1_100_000))


def part(transfer_id: int, index: int, data: bytes = b"x", last: bool = False) -> bytes:
    return pack("part", Part(transfer_id=transfer_id, index=index, data=data, last=last))


@pytest.mark.parametrize(("strings", "code"), [
    ([part(1, 0), part(1, 2)], "protocol_violation"),
    ([part(1, 0), part(1, 0)], "protocol_violation"),
    ([part(1, 1)], "protocol_violation"),
    ([part(1, 0, b"")], "protocol_violation"),
    ([part(0, 0)], "protocol_violation"),
    ([part(1, 0, pack("ping", Ping(nonce=1)), last=True), part(1, 0)], "protocol_violation"),
    ([part(number, 0) for number in range(1, 6)], "too_many"),
    ([part(1, index, b"x" * 200_000) for index in range(6)], "transfer_too_large"),
    ([part(number, index, b"x" * 200_000) for index in range(2) for number in (1, 2, 3)], "transfer_too_large"),
    ([part(1, 0, part(2, 0, pack("ping", Ping()), last=True), last=True)], "protocol_violation"),
    ([part(1, 0, b"\xff\xff", last=True)], "decode_error"),
    ([part(1, 0, pack("hello", Hello()), last=True)], "out_of_state"),
])
def test_parts_that_break_the_rules_are_refused(strings, code):
    session = Session(LISTENER, default_limits(transfer_bytes=1_000_000))
    session.receive(pack("hello", Hello()))
    session.encode("welcome", Welcome())
    with pytest.raises(RemoteProtocolError) as refusal:
        for string in strings:
            session.receive(string)
    assert refusal.value.code == code


def test_parts_nested_a_million_deep_are_refused_at_the_second():
    data = pack("ping", Ping())
    for _ in range(5_000):
        data = part(1, 0, data, last=True)
    with pytest.raises(RemoteProtocolError):
        in_state(LISTENER, State.READY).receive(data)


# --- counts -----------------------------------------------------------------------------------------------------------

TOO_MANY = [
    (LISTENER, State.READY, "event_batch", run_pb2.EventBatch(events=[run_pb2.RuntimeEvent()] * 1001)),
    (LISTENER, State.AUTHENTICATED, "runs_report", RunsReport(runs=[RunReport()] * 1001)),
    (LISTENER, State.READY, "node_status", node_pb2.NodeStatus(facts={str(number): "" for number in range(1001)})),
    (LISTENER, State.READY, "node_status", node_pb2.NodeStatus(version="x" * 65_537)),
    (LISTENER, State.READY, "node_status", node_pb2.NodeStatus(labels={"a": "x" * 65_537})),
    (LISTENER, State.READY, "node_status",
     node_pb2.NodeStatus(adapters=[node_pb2.AdapterState(targets=[node_pb2.TargetState()] * 10_001)])),
    (DIALER, State.READY, "run_request", run_pb2.RunRequest(labels={str(number): "" for number in range(1001)})),
    (DIALER, State.READY, "node_config_payload", node_pb2.NodeConfigPayload(removed_adapters=["x" * 65_537])),
]


@pytest.mark.parametrize(("role", "state", "kind", "message"), TOO_MANY)
def test_more_than_a_cap_is_refused_and_not_sent(role, state, kind, message):
    with pytest.raises(RemoteProtocolError) as refusal:
        in_state(role, state).receive(pack(kind, message))
    assert refusal.value.code == "too_many"
    with pytest.raises(TooLarge):
        in_state(DIALER if role == LISTENER else LISTENER, state).encode(kind, message)


def test_a_prompt_may_be_longer_than_other_texts():
    request = run_pb2.RunRequest(prompt="x" * 200_000)
    assert in_state(DIALER, State.READY).receive(pack("run_request", request))[1] == request


def test_a_flood_of_pings_is_refused():
    session = in_state(LISTENER, State.READY)
    with pytest.raises(RemoteProtocolError) as refusal:
        for _ in range(101):
            session.receive(pack("ping", Ping()))
    assert refusal.value.code == "too_many"


def test_protobuf_in_pure_python_is_not_accepted():
    require_native_protobuf("upb")
    with pytest.raises(ImportError):
        require_native_protobuf("python")


def test_packing_is_what_protobuf_itself_would_encode():
    batch = run_pb2.EventBatch(run_id="a" * 32, events=[run_pb2.RuntimeEvent(output="x" * 50)] * 300)
    assert pack("event_batch", batch) == Frame(event_batch=batch).SerializeToString()
    assert pack("ping", Ping()) == Frame(ping=Ping()).SerializeToString()


def test_a_message_of_another_kind_is_not_packed():
    with pytest.raises(LocalProtocolError):
        in_state(DIALER, State.READY).encode("event_batch", run_pb2.EventAck())


# --- life -------------------------------------------------------------------------------------------------------------


def ticks(session: Session, start: float, count: int) -> list[str | None]:
    return [session.tick(start + second) for second in range(count)]


def test_a_quiet_link_is_pinged_once_after_5_s_and_dead_after_12():
    session = in_state(DIALER, State.READY)
    session.tick(99)
    told = ticks(session, 100, 13)
    assert told.index("ping") == 4 and told.count("ping") == 1
    assert told.index("dead") == 11


def test_any_frame_is_life():
    session = in_state(DIALER, State.READY)
    for second in range(100):
        if second % 4 == 0:
            session.receive(pack("event_ack", run_pb2.EventAck()))
        assert session.tick(second) is None


def test_a_process_that_slept_does_not_take_its_links_for_dead():
    session = in_state(DIALER, State.READY)
    session.tick(0), session.tick(1)
    assert session.tick(3600) is None
    assert session.tick(-3600) is None


def test_a_clock_that_jumps_back_does_not_stop_the_heartbeat():
    session = in_state(DIALER, State.READY)
    session.tick(0), session.tick(1), session.tick(-86_400)
    assert "dead" in ticks(session, -86_399, 14)


def test_a_link_that_is_not_greeted_has_its_own_deadline():
    assert set(ticks(Session(LISTENER, default_limits()), 0, 30)) == {None}


def test_a_refused_dialer_is_closed():
    session = in_state(DIALER, State.WAITING)
    assert session.receive(pack("reject", Reject(code="auth_failed")))[0] == "reject"
    assert session.state is State.CLOSED


def test_the_tables_know_every_kind_they_name():
    named = set().union(*SENDS.values(), *RECEIVES.values())
    assert named <= set(session_module.KINDS)


def test_no_cap_is_below_what_passes_unchecked() -> None:
    limits = (caps.EVENTS, caps.ITEMS, caps.MAP_ENTRIES, caps.STRING_CHARS, *caps._LISTS.values())
    assert min(limits) >= caps.HARMLESS_BYTES
