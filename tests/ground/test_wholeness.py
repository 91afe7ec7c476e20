"""What the checker of a run finds, and that each kind of damage is found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256

import pytest

from iop.events import ending, output, started
from iop.proto.link_pb2 import Frame
from iop.proto.run_pb2 import EventBatch, Gap, Outcome, RuntimeEvent, Totals
from iop.records import RunRecord
from iop.wholeness import Checker, Findings

RUN = "a" * 32
Row = tuple[int, int, int, bytes]


def chain(*pieces: bytes) -> bytes:
    digest = bytes(32)
    for piece in pieces:
        digest = sha256(digest + piece).digest()
    return digest


def row(first: int, *events: RuntimeEvent, attempt: int = 1, run_id: str = RUN) -> Row:
    batch = EventBatch(run_id=run_id, attempt=attempt, first_seq=first, events=events)
    return attempt, first, first + len(events) - 1, Frame(event_batch=batch).SerializeToString()


def done(events: int, *pieces: bytes) -> RuntimeEvent:
    return ending("completed", Outcome(code="ok", totals=Totals(
        events=events, bytes=sum(map(len, pieces)), digest=chain(*pieces))))


def check(rows: Sequence[Row], state: str = "completed", incomplete: int = 0, late: Sequence[tuple[int, int, int]] = ()
          ) -> Findings:
    checker = Checker(RunRecord(run_id=RUN, state=state, adapter="cli", target="t", attempt=1, incomplete=incomplete,
                                ended_us=0 if state == "running" else 1))
    for one in rows:
        checker.batch(*one)
    for one in late:
        checker.late(*one)
    return checker.findings()


WHOLE = [row(1, started("cli", "t"), output("ab")), row(3, output("?", exact=b"\xff")), row(4, output("", raw=b"x")),
         row(5, done(4, b"ab", b"\xff", b""))]


def test_a_run_as_its_node_told_it_is_whole() -> None:
    found = check(WHOLE)
    assert found.whole and found.as_dict() == {
        "run_id": RUN, "state": "completed", "whole": True, "checked": "digest", "events": 4, "bytes": 3,
        "digest": chain(b"ab", b"\xff", b"").hex(),
        "told": {"events": 4, "bytes": 3, "digest": chain(b"ab", b"\xff", b"").hex()}, "gaps": [], "late": 0, "faults": []}


def test_how_output_was_cut_into_events_is_part_of_the_chain() -> None:
    cut = [row(1, started("cli", "t"), output("a")), row(3, output("b")), *WHOLE[2:]]
    assert not check(cut).whole


@pytest.mark.parametrize(("damage", "sentence"), [
    (lambda rows: rows[:1] + rows[2:], "The events 1.3 to 1.3 are missing, and nothing says so."),
    (lambda rows: rows[1:], "The events 1.1 to 1.2 are missing, and nothing says so."),
    (lambda rows: rows[:2] + [row(3, output("x"))] + rows[2:], "The events 1.3 to 1.3 are there twice."),
    (lambda rows: rows[:-1], "Its ending is not in history."),
    (lambda rows: [*rows, row(6, output("more"))], "Events of attempt 1 stand behind the run's ending."),
    (lambda rows: [*rows, row(1, done(0), attempt=2)], "Events of attempt 2 stand behind the run's ending."),
    (lambda rows: [rows[0], row(3, output("?", exact=b"\xfe")), *rows[2:]],
     "The digest of its output is not the one that its node told."),
    (lambda rows: [rows[0], row(3, output("??")), *rows[2:]], "There are 4 bytes of output, and its node told 3."),
    (lambda rows: [*rows[:3], row(5, done(5, b"ab", b"\xff", b""))], "There are 4 events, and its node told 5."),
    (lambda rows: [rows[0], (1, 3, 3, b"\xff\xff"), *rows[2:]], "The batch of the events 1.3 to 1.3 is damaged."),
    (lambda rows: [rows[0], (1, 3, 3, rows[2][3]), *rows[2:]], "The batch of the events 1.3 to 1.3 is damaged."),
    (lambda rows: [rows[0], row(3, output("?", exact=b"\xff"), run_id="b" * 32), *rows[2:]],
     "The batch of the events 1.3 to 1.3 is damaged."),
    (lambda rows: [*rows[:3], row(5, ending("failed", Outcome(totals=Totals(events=4, bytes=3))))],
     "It ended as failed, and its row says completed.")])
def test_each_kind_of_damage_is_told(damage: Callable[[list[Row]], list[Row]], sentence: str) -> None:
    found = check(damage(WHOLE))
    assert not found.whole and sentence in found.faults


def test_a_gap_is_told_and_the_run_is_not_whole() -> None:
    gap = RuntimeEvent(gap=Gap(first_seq=2, reason="lost"))
    rows = [row(1, started("cli", "t")), row(4, gap, output("d")), row(6, done(5, b"a", b"b", b"c", b"d"))]
    found = check(rows, incomplete=1)
    assert not found.whole and found.faults == []
    assert [one.as_dict() for one in found.gaps] == [{"first": "1.2", "last": "1.4", "missing": 3}]
    assert (found.counted.events, found.told.events if found.told else 0) == (2, 5)


def test_an_ending_of_the_edge_has_no_totals_and_only_the_numbers_are_checked() -> None:
    lost = ending("failed", Outcome(code="node_lost"))
    found = check([*WHOLE[:3], row(1, lost, attempt=2)], "failed", late=[(1, 5, 8), (1, 7, 9), (1, 9, 9)])
    assert (found.whole, found.checked, found.told, found.late) == (True, "numbers", None, 5)
    assert (found.counted.events, found.counted.bytes) == (4, 3)
    assert not check([*WHOLE[:1], row(4, output("x")), row(1, lost, attempt=2)], "failed").whole


def test_a_run_whose_end_was_lost_is_not_whole_though_its_numbers_are() -> None:
    found = check([*WHOLE[:3], row(1, ending("failed", Outcome(code="history_gap")), attempt=2)], "failed", incomplete=1)
    assert found.faults == ["Events of it were lost with an earlier state of the history."]


def test_a_run_that_was_begun_again_is_compared_in_the_attempt_that_ended() -> None:
    assert check([row(1, started("cli", "t")), row(1, started("cli", "t"), output("x"), done(2, b"x"), attempt=2)]).whole


def test_a_run_that_has_not_ended_is_not_whole_yet() -> None:
    found = check(WHOLE[:2], "running")
    assert not found.whole and not found.faults, "what it should have is told with its ending"


def test_a_history_in_ruins_is_told_in_so_many_sentences() -> None:
    assert len(check([row(number, output("x")) for number in range(2, 5000, 2)]).faults) == 100
