"""What a person, and what a pipe sees of a run."""

import base64
import io

from iop.cli.output import RunPrinter, ago, fitted


class Screen(io.TextIOWrapper):
    """A standard stream that says whether it is a terminal."""

    def __init__(self, tty):
        super().__init__(io.BytesIO(), encoding="utf-8", write_through=True)
        self._tty = tty

    def isatty(self):
        return self._tty

    @property
    def shown(self):
        return self.buffer.getvalue()


def play(monkeypatch, events, *, tty, as_json=False):
    out, err = Screen(tty), Screen(tty)
    monkeypatch.setattr("sys.stdout", out)
    monkeypatch.setattr("sys.stderr", err)
    printer = RunPrinter(as_json=as_json)
    for event in events:
        printer.show(event)
    return out.shown, err.shown


def output(text, channel="stdout", **more):
    return {"type": "output", "channel": channel, "text": text, **more}


def test_a_pipe_gets_the_exact_bytes(monkeypatch):
    lossy = output("\ufffd", bytes_b64=base64.b64encode(b"\xff").decode())
    out, err = play(monkeypatch, [output("a\x1b["), lossy], tty=False)
    assert (out, err) == (b"a\x1b[\xff", b"")


def test_a_terminal_gets_no_escape_sequence(monkeypatch):
    out, _ = play(monkeypatch, [output("\x1b]0;owned\x07")], tty=True)
    assert b"\x1b" not in out and b"\\x1b]0;owned\\x07" in out


def test_standard_error_and_reasoning_stay_apart(monkeypatch):
    out, err = play(monkeypatch, [output("a"), output("b", "stderr"), output("c", "reasoning")], tty=False)
    assert (out, err) == (b"a", b"bc")


def test_a_failure_is_one_sentence_on_a_line_of_its_own(monkeypatch):
    ending = {"type": "failed", "message": "It broke.", "code": "adapter_error"}
    out, err = play(monkeypatch, [output("half"), ending], tty=True)
    assert (out, err) == (b"half\n", b"iop: failed: It broke. [adapter_error]\n")


def test_a_cancelled_run_says_so_once(monkeypatch):
    _, err = play(monkeypatch, [{"type": "cancelled", "message": "The run was cancelled.", "code": "cancelled"}], tty=False)
    assert err == b"iop: The run was cancelled.\n"


def test_json_is_one_event_a_line_and_harmless(monkeypatch):
    out, _ = play(monkeypatch, [output("\x1b"), {"type": "completed"}], tty=True, as_json=True)
    assert out.count(b"\n") == 2 and b"\x1b" not in out


def test_ago_counts_in_one_unit():
    assert ago("2026-12-01T09:00:00.5Z", 1796115600 + 7300) == "2 h"
    assert ago(None) == "-"


def test_long_lines_fit_a_terminal_and_a_pipe_gets_them_as_they_are(monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    text = "iop: one sentence that is longer than that\n     and a hint\n"
    assert fitted(text, Screen(tty=False)) == text
    shown = fitted(text, Screen(tty=True))
    assert shown == "iop: one sentence that is\n     longer than that\n     and a hint\n"
    assert fitted(shown, Screen(tty=True)) == shown
