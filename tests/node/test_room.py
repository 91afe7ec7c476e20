"""Which servers go so that another one fits, and what their logs tell."""

from __future__ import annotations

import pytest

from iop.node.room import Held, must_yield, room_for
from iop.node.server_log import ServerLog, progress_in

A, B, C = Held("a", 40, True, 1.0), Held("b", 40, True, 2.0), Held("c", 20, False, 0.0)


@pytest.mark.parametrize(("needed", "held", "going"), [
    (10, [], []), (0, [A, B, C], []), (10, [A, B, C], ["a"]), (50, [A, B, C], ["a", "b"]), (81, [A, B, C], None),
    (40, [A._replace(leaving=True), B, C], []), (50, [A._replace(idle=False), B, C], None)])
def test_the_least_recently_used_idle_ones_go_and_no_more_than_need_be(needed, held, going):
    assert room_for(needed, 100, held) == going


def test_without_a_budget_all_fit():
    assert room_for(10 ** 12, 0, [A, B, C]) == []


def test_who_waited_long_has_idle_ones_go_first_and_then_those_in_use():
    assert must_yield(100, 100, [C, B, A]) == ["a", "b", "c"]
    assert must_yield(30, 100, [C, A._replace(idle=False), B]) == ["b"]


@pytest.mark.parametrize(("line", "progress"), [
    ("Loading safetensors checkpoint shards:  50% Completed | 2/4 [00:01<00:01,  1.9it/s]", 0.5),      # vLLM 0.32.0
    ("." * 40, 0.4), (".", 0.0), ("GPU utilization 90%", 0.0), ("load: 100%", 1.0), ("loaded 3 of 4", 0.0),
    ("download 250%", 1.0)])
def test_progress_is_read_from_lines_that_tell_it(line, progress):
    assert progress_in(line) == progress


def test_the_last_words_are_lines_without_what_a_terminal_would_obey(tmp_path):
    log = ServerLog(str(tmp_path))
    log.write(b"\x1b[31merror\x1b[0m: no\x07 model\r\n" + b"x" * 10_000 + b"\nthe end")
    assert log.last_words() == f"error: no  model | {'x' * 200} | the end"
    log.begin()
    assert log.last_words() == ""


def test_a_disk_that_takes_nothing_costs_the_file_alone(tmp_path):
    log = ServerLog(str(tmp_path / "gone"))
    log.write(b"words\n")
    assert log.last_words() == "words"
