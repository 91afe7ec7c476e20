"""The spool: one write a turn before anything is sent, trimmed by acknowledgement only, and whole after any death."""

from __future__ import annotations

import errno
import os
import tempfile
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from twisted.internet.task import Clock

from iop import events
from iop.errors import NodeRestarted
from iop.node.segments import SegmentLog
from iop.node.spool import Spool
from iop.node.tally import Tally
from iop.proto.run_pb2 import EventBatch
from tests.node.fakes import MemoryLog


class Source:
    """One attempt that emits into a spool."""

    def __init__(self, spool: Spool, run_id: str = "r", tally: Tally | None = None) -> None:
        self.key = run_id, 1
        self.spool = spool
        self.tally = tally or Tally(*self.key)
        self.paused = False
        self.marks: list[bytes] = []
        spool.open(*self.key, self)

    def emit(self, *texts: str, mark: bytes = b"") -> None:
        told = [events.output(text) for text in texts]
        self.tally.take(told, bool)
        batches = self.tally.pack(told)
        self.spool.put(self.key, batches, self.tally.place(batches, mark), mark)

    def end(self) -> None:
        batches = self.tally.finish("failed", events.outcome_of(NodeRestarted()))
        self.spool.put(self.key, batches, self.tally.place(batches, b"", True), b"", True)

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False

    def kept(self, mark: bytes) -> None:
        self.marks.append(mark)

    def place(self) -> bytes:
        return self.tally.place()


def seen(packed: list[bytes]) -> list[str]:
    """``seq:text`` of every event of packed batches."""
    batches = [EventBatch.FromString(one) for one in packed]
    return [f"{batch.first_seq + n}:{event.output or event.WhichOneof('kind')}"
            for batch in batches for n, event in enumerate(batch.events)]


class Case:
    """A spool, and what it delivered."""

    def __init__(self, log: Any = None, **more: Any) -> None:
        self.clock = Clock()
        self.log = log or MemoryLog()
        self.spool = Spool(self.log, self.clock, **more)
        self.sent: list[bytes] = []
        self.spool.deliver = self.sent.append

    def again(self) -> Case:
        """Another start of the node; what this one had not written is gone."""
        other = Case(self.log.reopened())
        other.spool.recover()
        return other

    def pending(self, run_id: str = "r") -> list[str]:
        return seen(self.spool.pending_from(run_id, 1, 0))


def test_a_turn_is_one_write_and_nothing_is_sent_before_it() -> None:
    case = Case()
    writes: list[bytes] = []
    write = case.log._write
    case.log._write = lambda data, at: (writes.append(data), write(data, at))
    one, other = Source(case.spool), Source(case.spool, "s")
    one.emit("a", mark=b"1")
    other.emit("b")
    one.emit("c", mark=b"2")
    assert (case.sent, one.marks, writes, case.pending()) == ([], [], [], [])
    case.clock.advance(0)
    assert seen(case.sent) == ["1:a", "1:b", "2:c"]
    assert (one.marks, other.marks, len(writes)) == ([b"2"], [b""], 1)


def test_the_next_start_has_all_that_was_written_and_the_place_behind_it() -> None:
    case = Case()
    source = Source(case.spool)
    source.emit("a", "b", mark=b"place")
    source.emit("c")
    case.clock.advance(0)
    source.emit("lost with the process")
    then = case.again()
    assert then.pending() == ["1:a", "2:b", "3:c"]
    box = then.spool.box("r", 1)
    assert (box.open, box.last_seq, box.first_unacked) == (True, 3, 1)
    assert (box.entry.mark, box.entry.bytes, box.entry.last_seq) == (b"place", 3, 3)
    tally = Tally("r", 1)
    tally.go_on(box.entry)
    going_on = Source(then.spool, tally=tally)
    going_on.emit("d")
    then.clock.advance(0)
    assert seen(then.sent) == ["4:d"]
    assert then.again().pending() == ["1:a", "2:b", "3:c", "4:d"]
    straight = Tally("r", 1)
    for text in "abcd":
        straight.take([events.output(text)], bool)
    assert straight._digest == tally._digest


def test_what_is_acknowledged_goes_and_its_segments_with_the_last_of_it() -> None:
    case = Case(MemoryLog(segment_bytes=500))
    one, other = Source(case.spool), Source(case.spool, "s")
    for number in range(20):
        one.emit(f"{number}" * 20)
        case.clock.advance(0)
    other.emit("x")
    case.clock.advance(0)
    assert len(case.log.files) > 3
    case.spool.acknowledged("r", 1, 19)
    case.clock.advance(0)
    assert case.pending() == ["20:" + "19" * 20] and case.pending("s") == ["1:x"]
    assert len(case.log.files) <= 2
    assert case.spool.size_bytes == sum(len(kept.packed) for _, box in case.spool.boxes() for kept in box.batches)


def test_what_the_edge_does_not_want_leaves_the_disk() -> None:
    case = Case(MemoryLog(segment_bytes=300))
    Source(case.spool).emit("a" * 300)
    case.clock.advance(0)
    other = Source(case.spool, "s")
    other.emit("b" * 300)
    case.spool.drop("r", 1)
    case.clock.advance(0)
    assert case.again().pending() == [] and len(case.log.files) == 1
    assert not case.spool.put(("r", 1), [], b"")


def test_the_place_of_an_open_attempt_moves_on_before_its_segment_goes() -> None:
    case = Case(MemoryLog(segment_bytes=400))
    silent, busy = Source(case.spool, "silent"), Source(case.spool, "busy")
    silent.emit("once", mark=b"here")
    case.clock.advance(0)
    case.spool.acknowledged("silent", 1, 1)
    for number in range(40):
        busy.emit("x" * 50)
        case.clock.advance(0)
        case.spool.acknowledged("busy", 1, number + 1)
        case.clock.advance(0)
    assert len(case.log.files) <= 2 and "000000001" not in case.log.files
    box = case.again().spool.box("silent", 1)
    assert (box.open, box.last_seq, box.entry.mark, box.entry.bytes, box.first_unacked) == (True, 1, b"here", 4, 2)


def test_an_ending_stays_until_it_is_acknowledged_and_recorded() -> None:
    for order in (("acknowledged", "recorded"), ("recorded", "acknowledged")):
        case = Case()
        source = Source(case.spool)
        source.emit("a")
        source.end()
        case.clock.advance(0)
        then = case.again()
        assert then.spool.box("r", 1).ending()[0] == "failed" and not then.spool.box("r", 1).open
        for what in order:
            assert ("r", 1) in then.spool
            getattr(then.spool, what)(*("r", 1, 2)[:3 if what == "acknowledged" else 2])
        assert ("r", 1) not in then.spool


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EROFS])
def test_a_disk_that_takes_nothing_holds_all_back_and_loses_nothing(number: int) -> None:
    case = Case()
    one, other = Source(case.spool), Source(case.spool, "s")
    case.log.trouble = number
    one.emit("a")
    case.clock.advance(0)
    assert (case.sent, one.marks) == ([], []) and one.paused and other.paused and case.spool.stuck
    late = Source(case.spool, "late")
    assert late.paused
    one.emit("b")
    other.emit("c")
    case.clock.pump([0.4, 0.4, 0.4])
    assert case.sent == [] and case.again().pending() == []
    case.log.trouble = 0
    case.clock.advance(1)
    assert seen(case.sent) == ["1:a", "2:b", "1:c"]
    assert not one.paused and not other.paused and not late.paused and not case.spool.stuck
    assert case.again().pending() == ["1:a", "2:b"]


def test_above_its_quota_all_are_held_back_until_enough_is_acknowledged() -> None:
    case = Case(MemoryLog(segment_bytes=1000), quota_bytes=3000)
    source, other = Source(case.spool), Source(case.spool, "s")
    for _ in range(8):
        source.emit("x" * 400)
        case.clock.advance(0)
    assert source.paused and other.paused
    case.spool.acknowledged("r", 1, 7)
    assert not source.paused and not other.paused


def test_a_damaged_entry_tears_its_own_attempt_and_the_file_is_kept() -> None:
    case = Case()
    one, other, third = Source(case.spool), Source(case.spool, "s"), Source(case.spool, "t")
    for source, text in ((one, "a"), (other, "x"), (third, "u"), (one, "b"), (other, "HIT"), (one, "c"), (other, "z")):
        source.emit(text)
        case.clock.advance(0)
    third.end()
    case.clock.advance(0)
    (name, data), = case.log.files.items()
    data[data.index(b"HIT")] ^= 1
    spoilt = bytes(data)
    then = case.again()
    assert then.pending() == ["1:a", "2:b", "3:c"] and then.pending("s") == ["1:x"]
    assert then.pending("t") == ["1:u", "2:failed"]
    torn = [key[0] for key, box in then.spool.boxes() if box.torn]
    assert torn == ["s"]
    then.clock.advance(0)
    assert name in then.log.files            # of what is torn, it is the only copy
    box = then.spool.box("s", 1)
    tally = Tally("s", 1)
    tally.go_on(box.entry)
    batches = tally.finish("failed", events.outcome_of(NodeRestarted()))
    tally.place((), b"", True)
    then.spool.end("s", 1, batches, tally.entry)
    then.clock.advance(0)
    assert then.log.aside == {name: spoilt} and name not in then.log.files
    last = then.again()
    assert last.pending("s") == ["1:x", "2:failed"] and last.pending() == ["1:a", "2:b", "3:c"]
    assert not last.spool.box("s", 1).open and not last.spool.box("s", 1).torn


def hit_in_the_middle() -> Case:
    """Of two attempts the second entry of "r" is damaged; what follows it is of "s"."""
    case = Case()
    one, other = Source(case.spool), Source(case.spool, "s")
    for source, text in ((one, "a"), (other, "x"), (one, "HIT"), (other, "y")):
        source.emit(text)
        case.clock.advance(0)
    (data,) = case.log.files.values()
    data[data.index(b"HIT")] ^= 1
    return case


def test_what_may_have_been_hit_is_torn_where_nothing_behind_it_says_otherwise() -> None:
    case = hit_in_the_middle()
    then = case.again()
    assert [key[0] for key, box in then.spool.boxes() if box.torn] == ["r"]
    assert then.pending() == ["1:a"] and then.pending("s") == ["1:x", "2:y"]


def test_a_start_that_dies_while_it_puts_damage_aside_repairs_nothing() -> None:
    case = hit_in_the_middle()
    died = case.again()
    died.clock.advance(0)                    # what is whole is written again; the attempt that is torn has not been ended
    then = died.again()
    assert [key[0] for key, box in then.spool.boxes() if box.torn] == ["r"]
    assert then.pending() == ["1:a"] and then.pending("s") == ["1:x", "2:y"]


class Model:
    """Any order of emits, turns, acknowledgements, full disks and deaths, beside what must be there."""

    RUNS = ("a", "b", "c")

    def __init__(self, folder: str, segment_bytes: int) -> None:
        self.folder = folder
        self.segment_bytes = segment_bytes
        self.said: dict[str, list[str]] = {run: [] for run in self.RUNS}      # emitted, by this or an earlier start
        self.stored = dict.fromkeys(self.RUNS, 0)                             # how many of them are safe
        self.acked = dict.fromkeys(self.RUNS, 0)
        self.full = False
        self.start()

    def start(self) -> None:
        self.clock = Clock()
        self.log = SegmentLog(self.folder, self.segment_bytes)
        self.spool = Spool(self.log, self.clock)
        self.sent: dict[str, list[str]] = {run: [] for run in self.RUNS}
        self.spool.deliver = self.delivered
        self.spool.recover()
        self.sources = {}
        write = self.log._write
        self.log._write = lambda data, at: self.write(write, data, at)
        for run in self.RUNS:
            tally = Tally(run, 1)
            box = self.spool.box(run, 1)
            assert (box.last_seq if box else 0) == self.stored[run]
            if box is not None:
                assert not box.torn and box.entry.last_seq == box.last_seq
                assert box.entry.mark == str(self.stored[run]).encode()
                assert box.first_unacked <= self.acked[run] + 1
                tally.go_on(box.entry)
            assert self.held(run) == self.texts(run)[self.spool.first_unacked(run, 1) - 1:self.stored[run]]
            del self.said[run][self.stored[run]:]
            self.sources[run] = Source(self.spool, run, tally)

    def write(self, write: Any, data: bytes, at: int) -> None:
        if self.full:
            write(data[:len(data) // 2], at)
            raise OSError(errno.ENOSPC, "No space left on device")
        write(data, at)

    def delivered(self, packed: bytes) -> None:
        run = EventBatch.FromString(packed).run_id
        self.sent[run] += seen([packed])
        self.stored[run] = max(self.stored[run], int(self.sent[run][-1].split(":")[0]))

    def texts(self, run: str) -> list[str]:
        return [f"{n + 1}:{text}" for n, text in enumerate(self.said[run])]

    def held(self, run: str) -> list[str]:
        return seen(self.spool.pending_from(run, 1, 0))

    def emit(self, run: str, count: int) -> None:
        texts = [f"{run}{len(self.said[run]) + n}" for n in range(count)]
        self.said[run] += texts
        self.sources[run].emit(*texts, mark=str(len(self.said[run])).encode())

    def turn(self) -> None:
        self.clock.advance(1)
        self.check()

    def acknowledge(self, run: str, share: float) -> None:
        self.acked[run] = max(self.acked[run], int(self.stored[run] * share))
        self.spool.acknowledged(run, 1, self.acked[run])
        self.check()

    def die(self, lost: int) -> None:
        """In the middle of a write: a part of it is in the file."""
        segment = self.log.current
        if segment is not None and lost:
            with open(segment.path, "ab") as stream:
                stream.write((segment.word + os.urandom(64))[:lost])
        self.log.close()
        self.start()
        self.check()

    def check(self) -> None:
        for run in self.RUNS:
            assert self.sent[run] == self.texts(run)[self.stored[run] - len(self.sent[run]):self.stored[run]]
            first = self.spool.box(run, 1).first_unacked
            assert first <= self.acked[run] + 1
            assert self.held(run) == self.texts(run)[first - 1:self.stored[run]]


RUN = st.sampled_from(Model.RUNS)
STEP = st.one_of(
    st.tuples(st.just("emit"), RUN, st.integers(1, 4)), st.tuples(st.just("emit"), RUN, st.integers(1, 4)),
    st.tuples(st.just("turn")), st.tuples(st.just("turn")),
    st.tuples(st.just("acknowledge"), RUN, st.sampled_from([0.3, 0.7, 1.0])),
    st.tuples(st.just("full"), st.booleans()), st.tuples(st.just("die"), st.integers(0, 15)))


@settings(deadline=None, max_examples=30)
@example([("full", True), *[("emit", "a", 1), ("turn",), ("die", 0)] * 3], 1)
@given(st.lists(STEP, max_size=60), st.sampled_from([1, 200, 1000, 100_000]))
def test_no_order_of_emits_acknowledgements_and_deaths_loses_doubles_or_reorders(steps: list, segment_bytes: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        model = Model(folder, segment_bytes)
        for name, *arguments in steps:
            if name == "full":
                model.full = arguments[0]
            else:
                getattr(model, name)(*arguments)
        model.full = False
        model.turn()
        for run in model.RUNS:
            model.acknowledge(run, 1.0)
        model.turn()
        assert len(os.listdir(folder)) <= 2
        model.log.close()
