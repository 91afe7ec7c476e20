"""Whether history has a run whole: counted, chained and compared with what its node told. Pure; fed batch by batch, in order.

The figures are those of the attempt that the run's events are of. Totals are told by a node with its ending (`Totals` in
run.proto); an ending that the edge made has none, and then all that can be checked is that no number is missing.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any, NamedTuple

import msgspec
from google.protobuf.message import DecodeError

from iop.events import ENDING_KINDS, totals_dict
from iop.proto.link_pb2 import Frame
from iop.proto.run_pb2 import EventBatch, Outcome, RuntimeEvent, Totals
from iop.records import RunRecord
from iop.runs import ENDINGS

MAX_FAULTS = 100                 # sentences; a history in ruins is told by those
DIGEST, NUMBERS = "digest", "numbers"


class GapFound(NamedTuple):
    """Events that a gap event stands for."""

    attempt: int
    first_seq: int
    last_seq: int

    def as_dict(self) -> dict[str, object]:
        return {"first": f"{self.attempt}.{self.first_seq}", "last": f"{self.attempt}.{self.last_seq}",
                "missing": self.last_seq - self.first_seq + 1}


class Findings(msgspec.Struct, kw_only=True):
    """What was found. A run that has not ended is not whole, though it may have no fault.

    `checked`: "digest" when the node's totals were compared, "numbers" when there were none to compare.
    """

    run_id: str
    state: str
    checked: str
    counted: Totals
    told: Totals | None
    gaps: list[GapFound]
    late: int                    # events that came after the ending, kept apart
    faults: list[str]

    @property
    def whole(self) -> bool:
        return self.state in ENDINGS and not self.faults and not self.gaps

    def as_dict(self) -> dict[str, Any]:
        """As the contract shows it."""
        return {"run_id": self.run_id, "state": self.state, "whole": self.whole, "checked": self.checked,
                **totals_dict(self.counted), "told": totals_dict(self.told) if self.told is not None else None,
                "gaps": [gap.as_dict() for gap in self.gaps], "late": self.late, "faults": self.faults}


class _Count:
    """What one attempt has, its ending not counted."""

    def __init__(self, attempt: int) -> None:
        self.attempt = attempt
        self.last_seq = 0
        self.totals = Totals(digest=bytes(32))

    def take(self, event: RuntimeEvent) -> None:
        totals = self.totals
        totals.events += 1
        if event.HasField("output"):
            data = event.exact or event.output.encode("utf-8", "surrogatepass")
            totals.bytes += len(data)
            totals.digest = sha256(totals.digest + data).digest()


class Checker:
    """`record` is the run's row. Give it every batch in order, then the late ones in order, and ask for the findings."""

    def __init__(self, record: RunRecord) -> None:
        self._record = record
        self._count = self._shown = _Count(1)    # of the attempt that is read, and of the last that had more than an ending
        self._ending: tuple[str, Outcome] | None = None
        self._gaps: list[GapFound] = []
        self._faults: list[str] = []
        self._late = 0
        self._late_last = (0, 0)

    def batch(self, attempt: int, first_seq: int, last_seq: int, packed: bytes) -> None:
        """One row of history."""
        if attempt != self._count.attempt:
            self._count = _Count(attempt)
        name = f"{attempt}.{first_seq} to {attempt}.{last_seq}"
        try:
            batch = Frame.FromString(packed).event_batch
        except DecodeError:
            batch = EventBatch()
        if (batch.attempt, batch.first_seq, len(batch.events)) != (attempt, first_seq, last_seq - first_seq + 1) or (
                batch.run_id != self._record.run_id):
            self._fault(f"The batch of the events {name} is damaged.")
        else:
            self._sequence(batch)
            for event in batch.events:
                self._event(event, attempt)
        self._count.last_seq = max(self._count.last_seq, last_seq)

    def _sequence(self, batch: EventBatch) -> None:
        count, first = self._count, batch.first_seq
        if batch.events[0].HasField("gap"):
            first = batch.events[0].gap.first_seq
            self._gaps.append(GapFound(batch.attempt, first, batch.first_seq))
        if first > count.last_seq + 1:
            self._fault(f"The events {batch.attempt}.{count.last_seq + 1} to {batch.attempt}.{first - 1} are missing, and "
                        "nothing says so.")
        elif first <= count.last_seq:
            self._fault(f"The events {batch.attempt}.{first} to {batch.attempt}.{count.last_seq} are there twice.")

    def _event(self, event: RuntimeEvent, attempt: int) -> None:
        kind = event.WhichOneof("kind")
        if self._ending is not None:
            self._fault(f"Events of attempt {attempt} stand behind the run's ending.")
        if kind in ENDING_KINDS:
            self._ending = (kind, getattr(event, kind))
        elif kind != "gap":
            self._count.take(event)
            self._shown = self._count

    def late(self, attempt: int, first_seq: int, last_seq: int) -> None:
        """One row of what came after the ending; such rows may overlap."""
        begin = max(first_seq, self._late_last[1] + 1) if attempt == self._late_last[0] else first_seq
        self._late += max(0, last_seq - begin + 1)
        self._late_last = max(self._late_last, (attempt, last_seq))

    def findings(self) -> Findings:
        """All of it; to be asked once, at the end."""
        told = self._told()
        counted = self._shown.totals
        if told is not None and not self._gaps:
            self._compare(told, counted)
        return Findings(run_id=self._record.run_id, state=self._record.state, checked=DIGEST if told is not None else NUMBERS,
                        counted=counted, told=told, gaps=self._gaps, late=self._late, faults=self._faults)

    def _told(self) -> Totals | None:
        """The totals that stand in the run's ending. An ending that is missing or another one is a fault."""
        record = self._record
        if self._ending is None:
            if record.ended:
                self._fault("Its ending is not in history.")
            return None
        kind, outcome = self._ending
        if kind != record.state:
            self._fault(f"It ended as {kind}, and its row says {record.state}.")
        if record.incomplete and not self._gaps:
            self._fault("Events of it were lost with an earlier state of the history.")
        if not outcome.HasField("totals"):
            return None
        self._shown = self._count
        return outcome.totals

    def _compare(self, told: Totals, counted: Totals) -> None:
        for name, there, should in (("events", counted.events, told.events), ("bytes of output", counted.bytes, told.bytes)):
            if there != should:
                self._fault(f"There are {there} {name}, and its node told {should}.")
        if counted.digest != told.digest:
            self._fault("The digest of its output is not the one that its node told.")

    def _fault(self, sentence: str) -> None:
        if len(self._faults) < MAX_FAULTS and sentence not in self._faults[-1:]:
            self._faults.append(sentence)
