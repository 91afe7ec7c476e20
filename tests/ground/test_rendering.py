"""Text for a terminal: nothing in it is obeyed, and tables fit."""

from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iop.events import as_dict
from iop.proto.run_pb2 import (
    CHANNEL_STDERR,
    Artifact,
    PermissionRequest,
    RuntimeEvent,
    Status,
    ToolCall,
    ToolResult,
    Truncated,
    Usage,
)
from iop.rendering import cells, clip, event_note, fields, json_line, life_line, result_text, safe_line, safe_tty, table


@pytest.mark.parametrize(("raw", "shown"), [
    ("plain é 日本 🙂\n\t", "plain é 日本 🙂\n\t"), ("\x1b[2J", "\\x1b[2J"), ("\x9b31m", "\\x9b31m"),
    ("a\r\x08b\x7f\x00", "a\\x0d\\x08b\\x7f\\x00"),
    ("\u202eabc\u2066", "<U+202E>abc<U+2066>"), ("\ud800", "<U+D800>"), ("\U000e0041", "<U+E0041>"), ("\u2028", "<U+2028>"),
])
def test_what_a_terminal_would_obey_is_shown(raw, shown):
    assert safe_tty(raw) == shown


def test_a_line_stays_one_line():
    assert safe_line("a\nb\tc\x1b") == "a\\x0ab\\x09c\\x1b"


@given(st.text())
def test_no_control_character_is_left(text):
    left = {c for c in safe_tty(text) if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") or unicodedata.bidirectional(c)
            in ("RLO", "LRO", "RLE", "LRE", "PDF", "RLI", "LRI", "FSI", "PDI")}
    assert left <= {"\n", "\t"}
    assert "\n" not in safe_line(text) and "\t" not in safe_line(text)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_json_is_the_same_json_and_harmless(text):
    line = json_line({"a": text})
    assert json.loads(line) == {"a": text}
    assert safe_line(line) == line


def test_a_table_is_cut_to_its_width_and_the_first_column_last():
    rows = [{"id": "a" * 32, "name": "日本" * 20, "tags": {"x": 1, "y": None}, "on": True}]
    text = table(rows, ["id", "name", ("TAGS", "tags"), ("ON", lambda row: row["on"])], 60)
    assert all(cells(line) <= 60 for line in text.splitlines())
    assert "a" * 32 in text and "…" in text
    wide = table(rows, ["id", "name", ("X", "tags.x"), "missing"], 0)
    assert "日本" * 20 in wide and wide.splitlines()[1].endswith("1  -")


@given(st.text(), st.integers(1, 40))
def test_clipped_text_is_never_wider(text, width):
    assert cells(clip(safe_line(text), width)) <= width


def test_fields_show_nested_values_and_no_newline_of_theirs():
    text = fields({"a": 1, "labels": {"k\n": "v\nw"}, "list": [{"x": 1, "y": [1, 2]}, {"x": None}]})
    assert text == "a:      1\nlabels:\n  k\\x0a: v\\x0aw\nlist:\n  - x: 1\n    y: 1,2\n  - x: -\n"


@pytest.mark.parametrize(("result", "shown"), [(None, ""), ([], "none\n"), ("x\x1b", "x\\x1b\n"), ({"a": False}, "a: no\n"),
                                               ([{"a": 1}], "- a: 1\n")])
def test_a_result_without_columns_is_shown_as_it_is(result, shown):
    assert result_text(result) == shown


def test_an_empty_table_says_none():
    assert result_text({"runs": [], "next": ""}, ["run_id"], "runs") == "none\n"


@pytest.mark.parametrize(("event", "said"), [
    (RuntimeEvent(tool_call=ToolCall(call_id="c1", name="ls", arguments=b'{"path": "\\u202e"}')),
     'tool ls {"path":"\\u202e"}'),
    (RuntimeEvent(tool_result=ToolResult(call_id="c1", is_error=True)), "tool c1 failed"),
    (RuntimeEvent(permission_request=PermissionRequest(tool="rm", detail=b"[]")), "permission asked for rm []"),
    (RuntimeEvent(status=Status(word="thinking", detail="hard")), "thinking hard"),
    (RuntimeEvent(artifact=Artifact(name="a.png", bytes=7)), "made a.png (7 bytes)"),
    (RuntimeEvent(truncated=Truncated(channel=CHANNEL_STDERR, dropped_bytes=9)), "9 bytes of stderr were dropped"),
    (RuntimeEvent(usage=Usage(prompt_tokens=3)), ""),
])
def test_what_happens_in_a_run_is_said_in_a_few_words(event, said):
    assert event_note(as_dict(1, 1, event)) == said


def test_a_lifecycle_event_is_one_line_without_what_is_empty():
    event = {"id": 40, "at": "2026-12-01T11:06:38.000001Z", "type": "operator", "node_id": "node-1", "run_id": None,
             "source": {"face": "console", "principal": "SHA256:/Qfi9KMd+MyxFXdw6ZdHrqiO1lWkDQHmsSPuwqTuYDA ann"},
             "detail": {"action": "label", "changes": {"a": "b\n"}, "faults": [], "draining": False}}
    assert life_line(event) == ("    40  2026-12-01 11:06:38  operator        node-1  action=label,changes=a=b\\x0a,"
                                "draining=no  by SHA256:/Qfi9KMd… ann (console)")
    assert life_line({"id": 1, "at": "2026-12-01T11:05:34Z", "type": "edge_started"}).endswith("edge_started")
