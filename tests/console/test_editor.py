"""Line editing, without a terminal."""

from __future__ import annotations

import pytest

from iop.console.editor import MOST_HISTORY, KeyReader, LineEditor
from iop.rendering import cells


def typed(*chunks: bytes, editor: LineEditor | None = None) -> LineEditor:
    editor = editor or LineEditor("> ")
    reader = KeyReader()
    for chunk in chunks:
        for key in reader.feed(chunk):
            editor.press(key)
    return editor


@pytest.mark.parametrize("chunks", [(b"\x1b[A",), (b"\x1b", b"[A"), (b"\x1b[", b"A"), (b"\x1bOA",), (b"\x10",)])
def test_keys_are_read_however_they_are_cut(chunks):
    reader = KeyReader()
    assert [key for chunk in chunks for key in reader.feed(chunk)] == ["up"]


def test_characters_are_read_however_they_are_cut():
    reader = KeyReader()
    assert [key for byte in "aé日🙂".encode() for key in reader.feed(bytes([byte]))] == ["a", "é", "日", "🙂"]


def test_unknown_sequences_and_control_characters_are_dropped():
    assert KeyReader().feed(b"a\x1b[99;5~b\x00\x07c\x1b[200~d\xff") == ["a", "b", "c", "d", "\ufffd"]
    assert KeyReader().feed("a\u202eb\x9bc".encode()) == ["a", "b", "c"]


def test_an_endless_sequence_is_dropped():
    reader = KeyReader()
    assert reader.feed(b"\x1b[" + b"1" * 100) == []
    assert reader.feed(b"x") == ["x"]


def test_crlf_is_one_enter():
    assert KeyReader().feed(b"a\r\nb\n\n") == ["a", "enter", "b", "enter", "enter"]


@pytest.mark.parametrize(("keys", "text", "cursor"), [
    (b"abc\x1b[D\x1b[DX", "aXbc", 2), (b"abc\x01X\x05Y", "XabcY", 5), (b"abc\x7f", "ab", 2), (b"abc\x01\x1b[3~", "bc", 0),
    (b"abc\x01\x04", "bc", 0), (b"one two\x17", "one ", 4), (b"one two  \x17", "one ", 4), (b"one two\x1b[D\x15", "o", 0),
    (b"one two\x01\x06\x0b", "o", 1), (b"one two\x1bb\x1bbX", "Xone two", 1), (b"one two\x01\x1bfX", "oneX two", 4),
    (b"\x7f\x1b[D\x1b[C\x0b\x15\x17", "", 0), (b"a\x1b[H\x1b[Fb", "ab", 2),
])
def test_keys_change_the_line(keys, text, cursor):
    editor = typed(keys)
    assert (editor.text, editor.cursor) == (text, cursor)


def test_what_is_not_editing_is_handed_back():
    editor = LineEditor("> ")
    assert [editor.press(key) for key in ("enter", "complete", "interrupt", "clear", "eof", "x", "eof")] == [
        "enter", "complete", "interrupt", "clear", "eof", "", ""]


def test_history_goes_back_and_keeps_the_draft():
    editor = LineEditor("> ")
    for line in ("first", "second", "second", "  "):
        editor.reset()
        editor.insert(line)
        assert editor.take() == line
    assert editor.history == ["first", "second"]
    editor.insert("draft")
    seen = []
    for key in ("up", "up", "up", "down", "down", "down"):
        editor.press(key)
        seen.append(editor.text)
    assert seen == ["second", "first", "first", "second", "draft", "draft"]


def test_history_is_bounded():
    editor = LineEditor("> ")
    for number in range(MOST_HISTORY + 10):
        editor.insert(str(number))
        editor.take()
    assert len(editor.history) == MOST_HISTORY


def shown(editor: LineEditor, width: int) -> tuple[str, int]:
    """The row as drawn, and the cursor's cell."""
    drawn = editor.draw(width)
    assert drawn.startswith("\r")
    row, _, back = drawn[1:].partition("\x1b[K")
    return row, cells(row) - (int(back[2:-1]) if back else 0)


def test_a_line_is_drawn_with_its_cursor():
    assert shown(typed("aé日x\x1b[D\x1b[D".encode()), 80) == ("> aé日x", 4)


@pytest.mark.parametrize("cursor", [0, 1, 7, 49, 50, 99, 100])
def test_a_long_line_never_leaves_its_row_and_shows_the_cursor(cursor):
    editor = LineEditor("> ")
    editor.insert("日x" * 50)
    editor.cursor = cursor
    for width in (3, 5, 20, 80):
        row, cell = shown(editor, width)
        assert cells(row) < max(width, 5)
        assert 2 <= cell < max(width, 5)


def test_a_pasted_control_character_is_shown():
    editor = LineEditor("> ")
    editor.insert("a\x1bb")
    assert shown(editor, 80)[0] == "> a\\x1bb"
