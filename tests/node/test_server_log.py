"""What is kept of the words of a model server, and what they tell."""

from __future__ import annotations

import pytest

from iop.node.server_log import ServerLog, progress_in


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
