"""The rules of the conversation on a link, apart from its I/O: what may be said when, by whom, how large, and who is alive.

::

    listener                        dialer
      NEW                             NEW
       |  <------------ Hello --------  |
      WAITING (greeter decides)       WAITING
       |  --- Welcome (or Reject) --->  |          Reject: CLOSED
      AUTHENTICATED                   AUTHENTICATED
       |  <------- RunsReport page ...  |
       |  <------- RunsReport last ---  |
      REPORTED                        REPORTED
       |  --- Verdicts ... last ----->  |
      READY                           READY        runs, events, commands, configuration
       |  --- Goodbye (either) ------>  |
      DRAINING                        DRAINING     nothing is handed over any more
       |                                |
      CLOSED                          CLOSED

A table {role, state: kinds} is the allow-list of either direction. What stands outside it is a RemoteProtocolError when the
peer sent it and a LocalProtocolError when this process tried to.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Any

from google.protobuf.message import DecodeError

from iop.errors import TooLarge
from iop.link.caps import HARMLESS_BYTES, TooMany, check_for
from iop.link.errors import LocalProtocolError, RemoteProtocolError
from iop.link.frames import KINDS, framed, pack
from iop.link.limits import GREETING_BYTES, PINGS_A_SWEEP, agreed
from iop.link.parts import Transfers, split
from iop.link.seal import SEAL_BYTES
from iop.proto import link_pb2
from iop.proto.link_pb2 import Frame, LinkLimits

LISTENER, DIALER = "listener", "dialer"
PROTOCOL = 1                         # the version that this code speaks
MAX_STEP_S = 2.0                     # the most that one sweep counts: a process that stood still kills no links


class State(enum.Enum):
    NEW = "new"
    WAITING = "waiting"
    AUTHENTICATED = "authenticated"
    REPORTED = "reported"
    READY = "ready"
    DRAINING = "draining"
    CLOSED = "closed"


GREETED = frozenset((State.AUTHENTICATED, State.REPORTED, State.READY))
OVER = frozenset((State.DRAINING, State.CLOSED))

_ANY_TIME = frozenset(("ping", "pong", "goodbye", "part"))
_FROM_DIALER = frozenset(("run_accepted", "run_rejected", "event_batch", "node_command_response", "config_applied",
                          "node_status"))
_FROM_LISTENER = frozenset(("run_request", "cancel_request", "run_input", "event_ack", "resend", "node_command_request",
                            "node_config_payload", "verdicts"))

# What each role may send. Some states differ from what the other end may then receive: frames cross on their way.
SENDS: Mapping[tuple[str, State], frozenset[str]] = {
    (LISTENER, State.NEW): frozenset(("reject",)),
    (LISTENER, State.WAITING): frozenset(("welcome", "reject")),
    (LISTENER, State.AUTHENTICATED): _ANY_TIME | {"verdicts"},
    (LISTENER, State.REPORTED): _ANY_TIME | {"verdicts"},
    (LISTENER, State.READY): _ANY_TIME | _FROM_LISTENER,
    (DIALER, State.NEW): frozenset(("hello",)),
    (DIALER, State.AUTHENTICATED): _ANY_TIME | {"runs_report"},
    (DIALER, State.REPORTED): _ANY_TIME,
    (DIALER, State.READY): _ANY_TIME | _FROM_DIALER,
}
RECEIVES: Mapping[tuple[str, State], frozenset[str]] = {
    (LISTENER, State.NEW): frozenset(("hello",)),
    (LISTENER, State.AUTHENTICATED): _ANY_TIME | {"runs_report"},
    (LISTENER, State.REPORTED): _ANY_TIME,
    (LISTENER, State.READY): _ANY_TIME | _FROM_DIALER,
    (DIALER, State.NEW): frozenset(("reject",)),
    (DIALER, State.WAITING): frozenset(("welcome", "reject")),
    (DIALER, State.AUTHENTICATED): _ANY_TIME | {"verdicts"},
    (DIALER, State.REPORTED): _ANY_TIME | {"verdicts"},
    (DIALER, State.READY): _ANY_TIME | _FROM_LISTENER,
}
_MOVES = {"hello": State.WAITING, "welcome": State.AUTHENTICATED, "reject": State.CLOSED, "goodbye": State.DRAINING}
_MOVING = frozenset((*_MOVES, "runs_report", "verdicts", "part"))

_CHECKS = {kind: check_for(kind) for kind in KINDS}
_Table = dict[str, Callable[[Any], None]]
_NOTHING: _Table = {}


def _tables(allowed: Mapping[tuple[str, State], frozenset[str]]) -> dict[tuple[str, State], _Table]:
    return {key: {kind: _CHECKS[kind] for kind in kinds} for key, kinds in allowed.items()}


_SENDABLE, _RECEIVABLE = _tables(SENDS), _tables(RECEIVES)


class Session:
    """One side of one conversation. Pure: bytes in, frames out, the clock told by `tick`.

    `limits` of a listener are what it will name in its Welcome; a dialer's are replaced by what Welcome names.
    """

    def __init__(self, role: str, limits: LinkLimits) -> None:
        self.role = role
        self.limits = agreed(limits)
        self.state = State.NEW
        self.max_length = GREETING_BYTES
        self._quiet_s = 0.0
        self._ticked: float | None = None
        self._heard = False
        self._pinged = False
        self._pings = 0
        self._transfer_id = 0
        self._transfers = Transfers(self.limits.transfer_bytes)
        self._move(State.NEW)

    # --- receiving ------------------------------------------------------------------------------------------------

    def receive(self, data: bytes, joined: bool = False) -> tuple[str, Any, bytes] | None:
        """(kind, message, packed Frame) of one string as it came, or None where there is nothing to hand over.

        None: a Part that is not the last, a kind that a newer peer knows and we do not, anything after the end. Raises
        RemoteProtocolError; the caller then closes. `joined`: `data` was made of Parts, and may be none itself.
        """
        self._heard = True
        try:
            frame = Frame.FromString(data)
        except DecodeError:
            return self._undecodable()
        kind = frame.WhichOneof("kind")
        check = self._receivable.get(kind)
        if check is None:
            return self._unexpected(kind)
        message = getattr(frame, kind)
        if len(data) > HARMLESS_BYTES:
            try:
                check(message)
            except TooMany as error:
                raise RemoteProtocolError(str(error), code="too_many") from None
        if kind in _MOVING:
            if kind == "part":
                return self._part_received(message, joined)
            self._moved(kind, message, RemoteProtocolError)
        elif kind == "ping":
            self._count_ping()
        return kind, message, data

    def _undecodable(self) -> None:
        if self.state not in OVER:
            raise RemoteProtocolError("The peer sent bytes that are no frame.", code="decode_error")

    def _unexpected(self, kind: str | None) -> None:
        """Outside of the table. An unknown kind comes from a newer peer and is ignored, but not before it is greeted."""
        if self.state in OVER or (kind is None and self.state in GREETED):
            return
        raise RemoteProtocolError(f"The peer sent {kind or 'an unknown kind of frame'}, which is not allowed to a "
                                  f"{_other(self.role)} while the link is {self.state.value}.", code="out_of_state")

    def _part_received(self, part: link_pb2.Part, joined: bool) -> tuple[str, Any, bytes] | None:
        if joined:
            raise RemoteProtocolError("The peer sent a part made of parts.")
        whole = self._transfers.add(part)
        return None if whole is None else self.receive(whole, True)

    def _count_ping(self) -> None:
        self._pings += 1
        if self._pings > PINGS_A_SWEEP:
            raise RemoteProtocolError(f"The peer sent more than {PINGS_A_SWEEP} pings within a second.", code="too_many")

    # --- sending --------------------------------------------------------------------------------------------------

    def encode(self, kind: str, message: Any) -> list[bytes]:
        """The strings to send, in order: one, or the parts of a large one; none after the end.

        Raises LocalProtocolError where the table does not allow it, and TooLarge where the peer would not take it.
        """
        check = self._sendable.get(kind)
        if check is None:
            return self._unsendable(kind)
        packed = pack(kind, message)
        if len(packed) > HARMLESS_BYTES:
            try:
                check(message)
            except TooMany as error:
                raise TooLarge(str(error)) from None
        strings = self._strings(kind, packed)
        if kind in _MOVING:
            self._moved(kind, message, LocalProtocolError)
        return strings

    def encode_packed(self, kind: str, packed: bytes) -> list[bytes]:
        """The same for an encoded message, which is not looked into: of a kind that moves nothing, within its caps."""
        if kind not in self._sendable or kind in _MOVING:
            return self._unsendable(kind)
        return self._strings(kind, framed(kind, packed))

    def _strings(self, kind: str, packed: bytes) -> list[bytes]:
        if len(packed) <= self.limits.part_bytes and len(packed) + SEAL_BYTES <= self.max_length:
            return [packed]
        return self._in_parts(kind, packed)

    def _unsendable(self, kind: str) -> list[bytes]:
        if self.state in OVER:
            return []
        raise LocalProtocolError(f"A {self.role} may not send {kind} while the link is {self.state.value}.")

    def _in_parts(self, kind: str, packed: bytes) -> list[bytes]:
        largest = self.limits.transfer_bytes if self.state in GREETED else self.max_length
        if len(packed) > largest or self.state not in GREETED:
            raise TooLarge(f"{kind} has {len(packed)} bytes; the link takes at most {largest}.")
        self._transfer_id += 1
        return [pack("part", part) for part in split(packed, self._transfer_id, self.limits.part_bytes)]

    # --- states ---------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """The connection is gone, or about to be."""
        self._move(State.CLOSED)

    def _moved(self, kind: str, message: Any, error: type[LocalProtocolError] | type[RemoteProtocolError]) -> None:
        if kind == "welcome":
            self._agree(message)
        if kind in _MOVES:
            self._move(_MOVES[kind])
        elif kind == "runs_report" and message.last:
            self._move(State.REPORTED)
        elif kind == "verdicts" and message.last and self.state is not State.READY:
            if self.state is not State.REPORTED:
                raise error("The last Verdicts came before the last RunsReport.")
            self._move(State.READY)

    def _agree(self, welcome: link_pb2.Welcome) -> None:
        if self.role == DIALER:
            self.limits = agreed(welcome.limits)
        self._transfers = Transfers(self.limits.transfer_bytes)

    def _move(self, state: State) -> None:
        self.state = state
        self._sendable = _SENDABLE.get((self.role, state), _NOTHING)
        self._receivable = _RECEIVABLE.get((self.role, state), _NOTHING)
        if state in GREETED:
            self.max_length = self.limits.frame_bytes
        elif state in OVER:
            self._transfers.clear()

    # --- life -----------------------------------------------------------------------------------------------------

    def tick(self, now_s: float) -> str | None:
        """Called once a second: "ping" when a Ping is due, "dead" when the link is to be aborted, else None.

        Time that passed without ticks counts as MAX_STEP_S at most, since then it was this process that slept.
        """
        step_s = min(max(now_s - self._ticked, 0.0), MAX_STEP_S) if self._ticked is not None else 0.0
        self._ticked = now_s
        self._pings = 0
        if self._heard or self.state not in GREETED:
            self._heard = self._pinged = False
            self._quiet_s = 0.0
            return None
        self._quiet_s += step_s
        if self._quiet_s >= self.limits.dead_after_s:
            return "dead"
        if self._quiet_s >= self.limits.ping_after_s and not self._pinged:
            self._pinged = True
            return "ping"
        return None


def _other(role: str) -> str:
    return DIALER if role == LISTENER else LISTENER
