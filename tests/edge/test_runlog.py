from __future__ import annotations

import random

import pytest
from zope.interface.verify import verifyObject

from iop.edge.cursor import RunCursor
from iop.edge.packing import pack, unpack
from iop.edge.runlog import Entry, Hole, RunLog
from iop.events import ending, output
from iop.interfaces import IHistory, IRunCursor
from iop.link.errors import RemoteProtocolError
from iop.proto.run_pb2 import CHANNEL_REASONING, EventBatch, Outcome
from iop.records import BatchRow
from iop.runs import START, EventId
from iop.testing.history import FakeHistory

RUN = "0" * 32


def batch(first: int, *texts: str, attempt: int = 1, end: str = "") -> EventBatch:
    events = [output(text) for text in texts]
    if end:
        events.append(ending(end, Outcome(code="ok")))
    return EventBatch(run_id=RUN, attempt=attempt, first_seq=first, events=events)


class Logged:
    """A log and its history, fed together."""

    def __init__(self, tail_bytes: int = 1 << 20) -> None:
        self.history = FakeHistory()
        self.dirty: set[RunLog] = set()
        self.log = RunLog(RUN, START, tail_bytes, self.dirty)

    def add(self, made: EventBatch, *, commit: bool = True) -> Entry | None:
        entry = self.log.append(made, pack(made))
        if entry is not None and commit:
            self.commit(entry)
        return entry

    def commit(self, entry: Entry) -> None:
        self.history.append([BatchRow(RUN, entry.attempt, entry.first_seq, entry.last_seq, entry.packed)])
        self.log.commit(entry)

    def cursor(self, after: EventId = START) -> RunCursor:
        return RunCursor(RUN, after, self.history, self.log)


def read(cursor: RunCursor, limit: int = 1 << 20) -> list[str]:
    """All that a reader gets until there is nothing, as texts; checks that no id is missing or comes twice."""
    found: list[str] = []
    place = cursor.after
    while True:
        taken = cursor.take(limit)
        if not isinstance(taken, list):
            page: list[Entry] = []
            taken.addCallback(page.extend)
            taken = page
        if not taken:
            return found
        for entry in taken:
            assert entry.attempt > place.attempt or entry.first_seq == place.seq + 1
            place = EventId(entry.attempt, entry.last_seq)
            found += [event.output or "." for event in entry.batch.events]
        assert cursor.after == place


def test_the_fakes_and_the_cursor_are_what_they_claim() -> None:
    assert verifyObject(IHistory, FakeHistory())
    assert verifyObject(IRunCursor, Logged().cursor())


def test_a_packed_batch_is_a_frame_that_reads_as_it_was() -> None:
    made = batch(3, "a", "b")
    assert unpack(pack(made)) == made


def test_batches_are_taken_in_order_and_a_repeated_one_is_dropped() -> None:
    logged = Logged()
    assert logged.add(batch(1, "a", "b")) is not None
    assert logged.add(batch(1, "a", "b")) is None
    assert logged.add(batch(2, "b")) is None
    assert logged.add(batch(3, "c")) is not None
    assert read(logged.cursor()) == ["a", "b", "c"]


def test_what_is_partly_there_is_trimmed_to_the_rest() -> None:
    logged = Logged()
    logged.add(batch(1, "a", "b"))
    entry = logged.add(batch(2, "b", "c", "d"))
    assert entry is not None and (entry.first_seq, entry.last_seq) == (3, 4)
    assert unpack(entry.packed) == entry.batch
    assert read(logged.cursor()) == ["a", "b", "c", "d"]


def test_a_hole_is_told_with_the_place_to_send_from() -> None:
    logged = Logged()
    logged.add(batch(1, "a"))
    with pytest.raises(Hole) as hole:
        logged.add(batch(3, "c"))
    assert hole.value.from_seq == 2
    with pytest.raises(Hole):
        logged.add(batch(2, "x", attempt=2))


@pytest.mark.parametrize("made", [batch(1), batch(0, "a"), batch(1, *["x"] * 1001)])
def test_an_impossible_batch_is_a_fault_of_the_peer(made: EventBatch) -> None:
    with pytest.raises(RemoteProtocolError):
        Logged().add(made)


def test_nothing_comes_after_the_ending() -> None:
    logged = Logged()
    logged.add(batch(1, "a", end="completed"))
    assert logged.log.ended
    assert logged.add(batch(3, "late")) is None
    cursor = logged.cursor()
    assert read(cursor) == ["a", "."] and cursor.ended
    assert cursor.take(100) == []


def test_a_reader_resumes_behind_the_event_it_names() -> None:
    logged = Logged()
    logged.add(batch(1, "a", "b", "c"))
    logged.add(batch(1, end="failed", attempt=2))
    assert read(logged.cursor(EventId(1, 2))) == ["c", "."]
    assert read(logged.cursor(EventId(1, 3))) == ["."]


def test_a_reader_that_saw_more_than_the_edge_kept_is_shown_nothing_twice() -> None:
    logged = Logged()
    logged.add(batch(1, "a"))
    cursor = logged.cursor(EventId(1, 3))       # before the edge died it had been shown b and c
    assert read(cursor) == []
    logged.add(batch(2, "b"))
    assert read(cursor) == []
    logged.add(batch(3, "c", "d"))
    assert read(cursor) == ["d"]


def test_a_reader_takes_at_least_one_entry_and_stops_at_its_limit() -> None:
    logged = Logged()
    for number in range(1, 6):
        logged.add(batch(number, "x" * 100))
    taken = logged.cursor().take(1)
    assert isinstance(taken, list) and len(taken) == 1
    taken = logged.cursor().take(400)
    assert isinstance(taken, list) and len(taken) == 2


def test_the_tail_lets_committed_entries_go_and_a_slow_reader_gets_them_from_history() -> None:
    logged = Logged(tail_bytes=20_000)
    slow = logged.cursor()
    for number in range(1, 101):
        logged.add(batch(number, f"{number:0200}"))
    assert logged.log.floor > START
    fast = logged.cursor(EventId(1, 99))
    assert isinstance(fast.take(1 << 20), list)
    assert not isinstance(slow.take(1000), list)
    assert read(logged.cursor(), 1000) == [f"{number:0200}" for number in range(1, 101)]


def test_what_is_not_committed_is_never_let_go() -> None:
    logged = Logged(tail_bytes=5_000)
    entries = [logged.add(batch(number, "x" * 200), commit=False) for number in range(1, 51)]
    assert logged.log.floor == START
    assert len(read(logged.cursor())) == 50
    for entry in entries[:49]:
        assert entry is not None
        logged.commit(entry)
    assert logged.log.floor > START
    assert len(read(logged.cursor())) == 50


def test_a_reader_of_an_ended_run_reads_history_alone() -> None:
    logged = Logged()
    logged.add(batch(1, "a", "b"))
    logged.add(batch(3, end="completed"))
    cursor = RunCursor(RUN, EventId(1, 1), logged.history, None)
    assert read(cursor) == ["b", "."] and cursor.ended
    at_the_end = RunCursor(RUN, EventId(1, 3), logged.history, None)
    assert read(at_the_end) == [] and at_the_end.ended


@pytest.mark.parametrize("after", [EventId(1, 3), EventId(1, 99), EventId(7, 1)])
@pytest.mark.parametrize("committed", [False, True])
def test_a_reader_behind_the_end_of_a_run_that_is_still_held_is_told_that_it_ended(after: EventId, committed: bool) -> None:
    logged = Logged()
    logged.add(batch(1, "a", "b"))
    logged.add(batch(3, end="completed"), commit=committed)
    cursor = logged.cursor(after)
    assert read(cursor) == [] and cursor.ended


@pytest.mark.parametrize("after", [EventId(1, 99), EventId(7, 1)])
def test_a_reader_ahead_of_a_run_is_told_of_its_end_and_of_nothing_else(after: EventId) -> None:
    logged = Logged()
    cursor = logged.cursor(after)
    for number in range(1, 4):
        logged.add(batch(number, "x" * 100))
        assert cursor.take(1) == [] and not cursor.ended
    logged.add(batch(4, end="completed"))
    assert cursor.take(1) == [] and cursor.ended


def test_a_reader_that_has_seen_the_first_entries_takes_what_follows_them_at_once() -> None:
    logged = Logged()
    cursor = logged.cursor(EventId(1, 3))        # it saw what an edge that died had not kept
    for number in range(1, 5):
        logged.add(batch(number, str(number)))
    assert cursor.take(1)[0].first_seq == 4


def test_readers_at_random_paces_all_see_every_event_once() -> None:
    seed = random.randrange(1 << 32)
    dice = random.Random(seed)
    logged = Logged(tail_bytes=8_000)
    wanted: list[str] = []
    readers: list[tuple[RunCursor, int, list[str]]] = []
    waiting: list[Entry] = []
    for _ in range(400):
        if dice.random() < 0.1:
            start = dice.randint(0, len(wanted))
            readers.append((logged.cursor(EventId(1, start)), start, []))
        texts = [str(len(wanted) + index) for index in range(dice.randint(1, 4))]
        entry = logged.add(batch(len(wanted) + 1, *texts), commit=False)
        wanted += texts
        assert entry is not None
        waiting.append(entry)
        if dice.random() < 0.5:
            for one in waiting:
                logged.commit(one)
            waiting.clear()
        for cursor, _start, seen in readers:
            if dice.random() < 0.2:
                taken = cursor.take(dice.choice((1, 200, 5000)))
                page: list[Entry] = []
                if isinstance(taken, list):
                    page = taken
                else:
                    taken.addCallback(page.extend)
                seen += [event.output for one in page for event in one.batch.events]
    for cursor, start, seen in readers:
        assert seen + read(cursor) == wanted[start:], f"seed {seed}"


def test_the_first_text_is_kept_for_those_who_search() -> None:
    logged = Logged()
    thinking = EventBatch(run_id=RUN, attempt=1, first_seq=1, events=[output("hmm", CHANNEL_REASONING), output("yes")])
    logged.add(thinking)
    logged.add(batch(3, "x" * 20_000))
    assert logged.log.output_text() == "yes" + "x" * (16 * 1024 - 3)


def test_readers_are_told_once_however_much_came() -> None:
    logged = Logged()
    told: list[int] = []
    cursor = logged.cursor()
    cursor.notify(lambda: told.append(1))
    logged.add(batch(1, "a"))
    logged.add(batch(2, "b"))
    while logged.dirty:
        logged.dirty.pop().tell()
    assert told == [1]
    cursor.close()
    logged.add(batch(3, "c"))
    assert not logged.dirty


def test_a_reader_that_fails_is_let_go_and_the_others_are_told() -> None:
    logged = Logged()
    told: list[int] = []
    failed: list[int] = []
    bad, good = logged.cursor(), logged.cursor()
    bad.notify(lambda: failed.append(1) or 1 / 0)
    good.notify(lambda: told.append(1))
    logged.add(batch(1, "a"))
    logged.log.tell()
    logged.log.tell()
    assert (told, failed) == ([1, 1], [1])


def test_what_the_edge_makes_itself_is_shown_once_history_has_it() -> None:
    """Nobody has it again if this edge dies before: the next one would make another (G2)."""
    logged = Logged()
    logged.add(batch(1, "one"))
    cursor = logged.cursor()
    made = batch(1, attempt=2, end="failed")
    entry = logged.log.append(made, pack(made), own=True)
    assert entry is not None and logged.log.ended
    assert read(cursor) == ["one"] and not cursor.ended
    logged.dirty.clear()
    logged.commit(entry)
    assert logged.dirty == {logged.log}
    [shown] = cursor.take(1 << 20)
    assert shown.last == EventId(2, 1) and cursor.ended


def test_what_follows_a_gap_waits_for_it() -> None:
    logged = Logged()
    logged.add(batch(1, "one"))
    gap = logged.log.skip(1, 5, "history was put back")
    behind = logged.add(batch(6, "six"), commit=False)
    cursor = logged.cursor()
    assert read(cursor) == ["one"]
    logged.commit(gap)
    assert [entry.last.seq for entry in cursor.take(1 << 20)] == [5, 6]      # a node has what it sent; it need not wait
    assert behind is not None and not cursor.ended
