"""`iop verify` and `iop drain`, with an edge that answers what a test says."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner, Result

from iop.cli import base, drain
from iop.cli.errors import ApiError
from iop.cli.main import main

RUN = "0199a7d2c3f04c5e8a9b0c1d2e3f4a5b"


class Edge:
    """Takes every call down, and answers with the next answer; the last one stays."""

    def __init__(self, answers: list[Any]) -> None:
        self.answers = answers
        self.asked: list[tuple[str, str, Any]] = []

    def call(self, method: str, path: str, *, body: Any = None, **more: Any) -> Any:
        self.asked.append((method, path, body))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def get(self, path: str, **query: Any) -> Any:
        return self.call("GET", path)


@pytest.fixture
def iop(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Result, Edge]]:
    def run(answers: list[Any], *words: str) -> tuple[Result, Edge]:
        edge = Edge(answers)
        monkeypatch.setattr(base, "find_edge", lambda state: edge)
        monkeypatch.setattr("sys.argv", ["iop", *words])
        return CliRunner().invoke(main, words, catch_exceptions=False), edge
    monkeypatch.setattr(drain, "LOOK_S", 0.0)
    return run


def findings(**fields: Any) -> dict[str, Any]:
    return {"run_id": RUN, "state": "completed", "whole": True, "checked": "digest", "events": 4, "bytes": 3,
            "digest": "ab" * 32, "told": {}, "gaps": [], "late": 0, "faults": []} | fields


def node(running: int, **fields: Any) -> dict[str, Any]:
    return {"node_id": "n1", "state": "up", "draining": True, "running": running} | fields


def test_a_whole_run_is_exit_code_0(iop: Any) -> None:
    result, edge = iop([findings()], "verify", RUN)
    assert (result.exit_code, edge.asked) == (0, [("GET", f"/api/v1/runs/{RUN}/verify", None)])
    assert result.stdout == f"{RUN} is whole: 4 events, 3 bytes of output, digest abababababababab…\n"


def test_what_is_missing_is_told_and_the_exit_code_is_1(iop: Any) -> None:
    found = findings(whole=False, gaps=[{"first": "1.3", "last": "1.4", "missing": 2}], late=7, state="failed",
                     checked="numbers", faults=["There are 2 events, and its node told 5."])
    result, _ = iop([found], "verify", RUN)
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        f"{RUN} is NOT whole: 4 events, 3 bytes of output, digest abababababababab…",
        "The events 1.3 to 1.4 (2) are lost.", "There are 2 events, and its node told 5.",
        "Its ending was made by the edge, without its node's totals: only the numbering was checked.",
        "After its ending came 7 events, kept apart."]
    result, _ = iop([found], "verify", RUN, "--json")
    assert (result.exit_code, json.loads(result.stdout)) == (1, found)


def test_a_run_that_has_not_ended_is_exit_code_5_unless_something_is_wrong_already(iop: Any) -> None:
    result, _ = iop([findings(whole=False, state="running")], "verify", RUN)
    assert (result.exit_code, result.stdout.split(":")[0]) == (5, f"{RUN} has not yet ended")
    result, _ = iop([findings(whole=False, state="running", faults=["The events 1.2 to 1.2 are missing."])], "verify", RUN)
    assert (result.exit_code, result.stdout.split(":")[0]) == (1, f"{RUN} is NOT whole")


def test_a_run_that_is_not_there_is_exit_code_3(iop: Any) -> None:
    result, _ = iop([ApiError(404, {"code": "no_such_run", "message": "There is no run with this id."})], "verify", RUN)
    assert result.exit_code == 3


def test_a_node_is_drained_and_taken_back(iop: Any) -> None:
    result, edge = iop([node(2)], "drain", "n1")
    assert (result.exit_code, result.stdout) == (0, "n1 takes no new runs; 2 runs still there.\n")
    assert edge.asked == [("PATCH", "/api/v1/nodes/n1", {"drain": True})]
    result, edge = iop([node(2, draining=False)], "drain", "n1", "--off")
    assert (result.exit_code, result.stdout) == (0, "n1 takes runs again.\n")
    assert edge.asked == [("PATCH", "/api/v1/nodes/n1", {"drain": False})]


def test_the_wait_for_the_last_run_tells_how_far_it_is(iop: Any) -> None:
    result, _ = iop([node(2), node(2), node(1, state="down"), node(0)], "drain", "n1", "--wait")
    assert (result.exit_code, result.stdout) == (0, "n1 takes no new runs; none is there.\n")
    assert result.stderr.splitlines() == [
        "[n1 takes no new runs; 2 runs still there.]",
        "[n1 takes no new runs; 1 run still there, and is not connected.]"]
    result, _ = iop([node(1), node(0)], "drain", "n1", "--wait", "--json")
    assert (result.stderr, json.loads(result.stdout)["running"]) == ("", 0)


def test_a_wait_that_takes_too_long_is_exit_code_1_and_the_node_stays_drained(iop: Any) -> None:
    result, edge = iop([node(1)], "drain", "n1", "--wait", "--timeout", "0.01")
    assert result.exit_code == 1 and "It stays drained" in result.stderr
    assert [method for method, _, _ in edge.asked].count("PATCH") == 1


@pytest.mark.parametrize("words", [("--off", "--wait"), ("--off", "--timeout", "3"), ("--timeout", "3"),
                                   ("--wait", "--timeout", "0")])
def test_what_does_not_fit_together_is_usage(iop: Any, words: tuple[str, ...]) -> None:
    result, edge = iop([node(1)], "drain", "n1", *words)
    assert (result.exit_code, edge.asked) == (2, [])


def test_a_node_that_is_not_there_is_exit_code_3(iop: Any) -> None:
    result, _ = iop([ApiError(404, {"code": "no_such_node", "message": "There is no node 'n9'."})], "drain", "n9")
    assert result.exit_code == 3


def test_usage_is_a_table_with_the_columns_asked_for(iop: Any) -> None:
    row = {"key": "anna", "model": "ollama/qwen2.5-coder:32b", "node": "workshop", "runs": 12345, "prompt_tokens": 123456789,
           "completion_tokens": 12345678, "total_tokens": 135802467, "cached_tokens": 98765432, "cost_usd": 0.0}
    result, edge = iop([{"usage": [row]}], "usage", "--by", "key,model,node")
    assert edge.asked == [("GET", "/api/v1/usage", None)]
    head, line = result.stdout.splitlines()
    assert head.split() == ["KEY", "MODEL", "NODE", "RUNS", "PROMPT", "ANSWER", "CACHED", "TOTAL"]
    assert line.split() == ["anna", "ollama/qwen2.5-coder:32b", "workshop", "12345", "123456789", "12345678", "98765432",
                            "135802467"]
    result, _ = iop([{"usage": [row]}], "usage", "--json")
    assert json.loads(result.stdout) == row
    result, _ = iop([{"usage": [row | {"cost_usd": 1.239}]}], "usage")
    assert "COST" in result.stdout and "$1.24" in result.stdout
