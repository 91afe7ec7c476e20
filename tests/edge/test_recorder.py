"""What goes to history when, and in what order."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from iop.edge.packing import MERGED_BYTES, pack, unpack
from iop.edge.recorder import AGAIN_S, PACE_BYTES, PACE_S, Recorder
from iop.edge.runlog import Entry
from iop.errors import Conflict, HistoryUnavailable
from iop.events import output
from iop.proto.run_pb2 import EventBatch
from iop.records import BatchRow


class Run:
    def __init__(self, run_id: str) -> None:
        self.run_id = run_id


class Desk:
    """A Recorder, a history whose commits the test tells, and what was told to be written."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.writes: list[tuple[list[BatchRow], Deferred[None]]] = []
        self.told: list[str] = []
        self.recorder = Recorder(self, self.clock, self.written, lambda run: self.told.append(f"{run.run_id} refused"))
        self.one, self.other = Run("one"), Run("other")

    def append(self, rows: list[BatchRow]) -> Deferred[None]:
        self.writes.append((rows, Deferred()))
        return self.writes[-1][1]

    def written(self, run: Run, entries: Any) -> None:
        self.told += [f"{run.run_id} {entry.first_seq}" for entry in entries]

    def write(self, run: Run, seq: int, changes: dict[str, Any] | None = None, *, size: int = 1) -> None:
        batch = EventBatch(run_id=run.run_id, attempt=1, first_seq=seq, events=[output("x" * size)])
        self.recorder.write(run, Entry(batch, pack(batch)), changes)  # type: ignore[arg-type]

    def rows(self, index: int) -> list[tuple[str, int, int, Any]]:
        return [(row.run_id, row.first_seq, row.last_seq, row.changes) for row in self.writes[index][0]]


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_what_comes_during_a_commit_is_one_row_a_run_in_the_next(desk: Desk) -> None:
    desk.write(desk.one, 1)
    desk.recorder.flush()
    for seq in (2, 3, 4):
        desk.write(desk.one, seq)
        desk.write(desk.other, seq)
        desk.recorder.flush()
    assert len(desk.writes) == 1
    assert desk.recorder.backlog == 2
    desk.clock.advance(PACE_S)
    desk.writes[0][1].callback(None)
    assert desk.rows(1) == [("one", 2, 4, None), ("other", 2, 4, None)]
    batch = unpack(desk.writes[1][0][0].packed)
    assert (batch.first_seq, len(batch.events)) == (2, 3)
    desk.writes[1][1].callback(None)
    assert desk.told == ["one 1", "one 2", "one 3", "one 4", "other 2", "other 3", "other 4"]


def test_a_trickle_is_written_at_a_pace_and_what_people_see_or_a_window_waits_for_at_once(desk: Desk) -> None:
    for seq in (1, 2, 3):
        desk.write(desk.one, seq)
        desk.recorder.flush()
        for _, done in desk.writes:
            if not done.called:
                done.callback(None)
    assert [desk.rows(0), desk.recorder.backlog] == [[("one", 1, 1, None)], 1]
    desk.clock.advance(PACE_S)
    assert desk.rows(1) == [("one", 2, 3, None)]
    desk.writes[1][1].callback(None)
    desk.write(desk.one, 4, size=PACE_BYTES)
    desk.recorder.flush()
    assert desk.rows(2) == [("one", 4, 4, None)]
    desk.writes[2][1].callback(None)
    desk.write(desk.one, 5, {"state": "completed"})
    desk.recorder.flush()
    assert desk.rows(3) == [("one", 5, 5, {"state": "completed"})]


def test_in_a_hurry_no_commit_is_waited_for(desk: Desk) -> None:
    desk.write(desk.one, 1)
    desk.recorder.flush()
    desk.write(desk.one, 2)
    desk.write(desk.one, 3, {"state": "completed"})
    desk.recorder.flush()
    assert len(desk.writes) == 1
    desk.recorder.hurry()
    assert desk.rows(1) == [("one", 2, 3, {"state": "completed"})]


def test_the_changes_of_one_row_are_all_written(desk: Desk) -> None:
    desk.write(desk.one, 1, {"state": "running", "started_us": 5})
    desk.write(desk.one, 2, {"state": "completed"})
    desk.recorder.flush()
    assert desk.rows(0) == [("one", 1, 2, {"state": "completed", "started_us": 5})]


def test_a_row_has_its_limit(desk: Desk) -> None:
    for seq in (1, 2, 3):
        desk.write(desk.one, seq, size=MERGED_BYTES // 3)
    desk.recorder.flush()
    assert [row[1:3] for row in desk.rows(0)] == [(1, 2), (3, 3)]


def test_what_failed_is_tried_again_as_the_same_rows_with_all_that_came_since(desk: Desk) -> None:
    desk.write(desk.one, 1)
    desk.recorder.flush()
    desk.write(desk.one, 2)
    desk.writes[0][1].errback(HistoryUnavailable())
    desk.write(desk.one, 3)
    desk.write(desk.other, 1)
    desk.recorder.flush()
    desk.clock.advance(PACE_S)
    assert desk.rows(1) == [("other", 1, 1, None)], "nothing of a run may be stored before what failed of it"
    assert desk.recorder.trouble
    desk.clock.advance(AGAIN_S)
    assert desk.rows(2) == [("one", 1, 1, None), ("one", 2, 3, None)]
    desk.writes[2][1].callback(None)
    desk.writes[1][1].callback(None)
    assert desk.told == ["one 1", "one 2", "one 3", "other 1"]
    assert not desk.recorder.trouble


def test_a_row_that_was_sent_grows_no_more(desk: Desk) -> None:
    desk.write(desk.one, 1)
    desk.recorder.flush()
    desk.write(desk.one, 2, {"state": "completed"})
    desk.recorder.hurry()
    assert [desk.rows(0), desk.rows(1)] == [[("one", 1, 1, None)], [("one", 2, 2, {"state": "completed"})]]


def test_a_run_that_fails_for_ever_holds_up_no_other(desk: Desk) -> None:
    desk.write(desk.one, 1)
    desk.write(desk.other, 1)
    desk.recorder.flush()
    desk.writes[0][1].errback(HistoryUnavailable())
    desk.clock.advance(AGAIN_S)
    by_run = {rows[0].run_id: done for rows, done in desk.writes[1:]}
    by_run["one"].errback(HistoryUnavailable())
    by_run["other"].callback(None)
    assert desk.told == ["other 1"]


def test_a_run_that_history_refuses_is_given_up_and_the_others_of_its_write_are_stored(desk: Desk) -> None:
    for run in (desk.one, desk.other):
        desk.write(run, 1)
    desk.recorder.flush()
    desk.writes[0][1].errback(Conflict())
    desk.write(desk.one, 2)
    desk.clock.advance(AGAIN_S)
    by_run = {rows[0].run_id: done for rows, done in desk.writes[1:]}
    by_run["one"].errback(Conflict())
    by_run["other"].callback(None)
    assert desk.told == ["one refused", "other 1"]
    assert not desk.recorder.trouble, "it is no trouble of the others"
    desk.write(desk.one, 1)                      # its ending, which the edge makes
    desk.recorder.flush()
    desk.writes[-1][1].callback(None)
    assert desk.told[2:] == ["one 1"]
    assert not desk.clock.getDelayedCalls()


def test_a_run_that_is_refused_twice_is_given_up_once(desk: Desk) -> None:
    desk.write(desk.one, 1)
    desk.recorder.flush()
    desk.write(desk.one, 2, {"state": "completed"})
    desk.recorder.flush()
    for _, done in desk.writes:
        done.errback(Conflict())
    assert desk.told == ["one refused"]


def test_stopped_it_tries_no_more(desk: Desk) -> None:
    desk.write(desk.one, 1)
    desk.recorder.flush()
    desk.writes[0][1].errback(HistoryUnavailable())
    desk.recorder.stop()
    assert not desk.clock.getDelayedCalls()
