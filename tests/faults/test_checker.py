"""The checker itself: each thing that must not be is found, and what is right is not."""

from __future__ import annotations

import dataclasses

import pytest

from tests.faults import child
from tests.faults.checker import chained, check
from tests.faults.witness import Event, Program, RolledBack, Run, Shown


def whole(outputs: int = 5) -> Run:
    """A run of a program that is right in every way: started, some output, an ending with totals."""
    said = [child.line("token", child.STDOUT, number) for number in range(1, outputs + 1)]
    events = [Event(1, 1, "started", "d1")]
    events += [Event(1, 2 + number, "output", f"d{2 + number}", "stdout", data) for number, data in enumerate(said)]
    totals = len(events), sum(map(len, said)), chained(said)
    events.append(Event(1, len(events) + 1, "completed", f"d{len(events) + 1}", totals=totals, code="ok", exit_code=0))
    run = Run("run", state="completed", history=events)
    run.spooled = [(event.attempt, event.seq, event.digest) for event in events]
    run.api = {event.id: f"json {event.digest}" for event in events}
    run.program = Program(1, {"stdout": outputs}, 0, {"stdout": b"".join(said), "stderr": b""})
    run.shown = [Shown("reader", [(*event.id, event.kind, f"json {event.digest}") for event in events], finished=True)]
    return run


def kinds(run: Run) -> list[str]:
    return sorted({finding.kind for finding in check([run]).findings})


def without(run: Run, seq: int) -> Run:
    run.history = [event for event in run.history if event.seq != seq]
    return run


def test_a_run_that_is_right_is_left_alone():
    report = check([whole(), whole(0)])
    assert report.findings == []
    assert (report.counts["runs"], report.counts["events"], report.counts["shown"]) == (2, 9, 9)


def test_a_hole_is_lost():
    assert "lost" in kinds(without(whole(), 4))


def test_a_missing_end_is_lost_although_what_is_there_is_in_order():
    run = whole()
    run.history = run.history[:4]
    assert {"lost", "no ending"} <= set(kinds(run))


def test_an_event_twice_is_duplicated():
    run = whole()
    run.history.insert(3, run.history[2])
    assert "duplicated" in kinds(run)


def test_two_events_that_changed_places_are_reordered():
    run = whole()
    run.history[2], run.history[3] = run.history[3], run.history[2]
    assert "reordered" in kinds(run)


def test_an_event_that_is_not_the_one_spooled_is_found():
    run = whole()
    run.history[3] = dataclasses.replace(run.history[3], digest="another")
    assert kinds(run) == ["reordered"]


def test_a_number_given_to_two_events_is_found():
    run = whole()
    run.spooled.append((1, 3, "another"))
    assert "duplicated" in kinds(run)


def test_output_that_the_program_never_wrote_is_a_phantom():
    run = whole()
    run.program.stream["stdout"] = run.program.stream["stdout"][:-5]
    assert "phantom" in kinds(run)


def test_the_end_of_the_output_may_be_missing_only_where_the_program_did_not_end_by_itself():
    run = whole()
    run.program.stream["stdout"] += b"more"
    assert kinds(run) == ["lost"]
    run.program.code = None
    assert kinds(run) == []


@pytest.mark.parametrize("second", ["failed", "completed"])
def test_a_second_ending_is_found(second):
    run = whole()
    run.history.append(Event(2, 1, second, "x"))
    assert "two endings" in kinds(run)


def test_output_behind_the_ending_is_found():
    run = whole()
    run.history.append(Event(1, len(run.history) + 1, "output", "x", "stdout", b"late"))
    assert "two endings" in kinds(run)


def test_a_row_that_tells_another_ending_is_found():
    run = whole()
    run.state = "failed"
    assert kinds(run) == ["two endings"]


def test_a_program_begun_twice_is_found():
    run = whole()
    run.program.begun = 2
    assert kinds(run) == ["executed twice"]


def test_two_attempts_with_output_are_found():
    run = whole()
    run.history.insert(-1, Event(2, 1, "output", "x", "stdout", b""))
    assert "executed twice" in kinds(run)


def test_totals_that_do_not_match_are_found():
    run = whole()
    run.history[-1] = dataclasses.replace(run.history[-1], totals=(6, 1, bytes(32)))
    assert kinds(run) == ["wrong totals"]


def test_a_run_that_history_does_not_know_is_lost():
    assert "lost" in kinds(Run("run", known=False))


def test_a_run_without_an_ending_is_not_safe_but_not_alive():
    run = Run("run", state="running")
    (finding,) = check([run]).findings
    assert finding.kind == "no ending" and not finding.is_safety


class TestReaders:
    """What they were shown."""

    def test_a_repeat_is_duplicated(self):
        run = whole()
        run.shown[0].events.insert(3, run.shown[0].events[2])
        assert kinds(run) == ["duplicated"]

    def test_a_gap_is_lost(self):
        run = whole()
        del run.shown[0].events[3]
        assert kinds(run) == ["lost"]

    def test_what_history_does_not_have_is_a_phantom(self):
        run = whole()
        run.shown[0].events[3] = (1, 4, "output", "another")
        assert kinds(run) == ["phantom"]

    def test_a_reader_that_jumps_to_another_attempt_has_lost_the_rest_of_the_one_before(self):
        run = whole()
        run.state = "failed"
        run.history[-1] = Event(2, 1, "failed", "x", code="node_lost")
        run.api[2, 1] = "json x"
        run.spooled.pop()
        run.shown[0].events[-2:] = [(2, 1, "failed", "json x")]
        assert "lost" in kinds(run)

    def test_one_that_did_not_come_to_the_end_is_behind(self):
        run = whole()
        run.shown[0].finished = False
        assert kinds(run) == ["reader behind"]


class TestRollBack:
    """The database had 6 events of attempt 1, its copy 3; the edge has to say so."""

    def rolled(self) -> Run:
        run = whole()
        run.rolled = RolledBack(had={1: 6}, kept={1: 3})
        run.before = run.history[:6]
        run.history[3:6] = [Event(1, 6, "gap", "g", gap_first=4)]
        run.api = {event.id: f"json {event.digest}" for event in run.history}
        return run

    def test_a_declared_gap_is_not_lost_but_counted(self):
        report = check([self.rolled()])
        assert report.findings == [] and report.counts["declared"] == 3

    def test_a_gap_without_a_roll_back_is_lost(self):
        run = self.rolled()
        run.rolled = None
        assert "lost" in kinds(run)

    def test_a_gap_that_is_wider_than_what_was_rolled_back_is_lost(self):
        run = self.rolled()
        run.rolled = RolledBack(had={1: 5}, kept={1: 3})
        assert "lost" in kinds(run)

    def test_a_hole_that_nobody_declares_is_lost_although_a_roll_back_explains_it(self):
        run = self.rolled()
        del run.history[3]
        assert "lost" in kinds(run)

    def test_a_run_that_the_copy_did_not_know_is_declared(self):
        run = whole()
        run.before = run.history
        run.known, run.state, run.history, run.api = False, "", [], {}
        run.rolled = RolledBack(attempt=None, had={1: 7})
        report = check([run])
        assert report.findings == [] and report.counts["runs declared lost"] == 1

    def test_an_ending_may_be_shown_that_the_roll_back_took(self):
        run = whole()
        run.state = "failed"
        run.rolled = RolledBack(had={1: 7}, kept={1: 4})
        run.before = list(run.history)
        run.history[4:] = [Event(2, 1, "failed", "x", code="history_gap")]
        run.api = {event.id: f"json {event.digest}" for event in run.history}
        assert kinds(run) == []

    def test_what_was_lost_before_the_roll_back_is_found_all_the_same(self):
        run = self.rolled()
        del run.before[2]
        assert "lost" in kinds(run)

    def test_an_attempt_that_the_copy_did_not_know_is_let_go(self):
        run = whole()
        run.before = run.history[:3]
        run.rolled = RolledBack(attempt=0, had={1: 3})
        run.state, run.history = "failed", [Event(2, 1, "failed", "x", code="node_restarted")]
        run.api = {(2, 1): "json x"}
        run.program = None
        assert kinds(run) == []
        run.rolled.attempt = 1
        assert "lost" in kinds(run)

    def test_what_stands_behind_a_gap_is_the_end_of_the_output(self):
        run = self.rolled()
        run.history[-1] = dataclasses.replace(run.history[-1], totals=None)
        run.program.stream["stdout"] += b"more"
        assert kinds(run) == []                  # the gap may have been behind all output
        run.history.insert(-1, Event(1, 7, "output", "d7", "stdout", b"other"))
        assert "reordered" in kinds(run)
