"""What the commands print: tables, JSON, and the output of runs, which is untrusted text."""

from __future__ import annotations

import base64
import calendar
import shutil
import sys
import textwrap
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TextIO

import click

from iop.rendering import ANSWER_CHANNELS, Column, event_note, json_line, safe_line, safe_tty, table
from iop.runs import ENDINGS


def print_json(value: object) -> None:
    """One JSON value on one line, harmless to look at."""
    click.echo(json_line(value))


def print_table(rows: Iterable[Mapping[str, Any]], columns: Sequence[Column]) -> None:
    """A table as wide as the terminal, or as wide as it needs when it goes elsewhere."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    click.echo(table(rows, columns, width), nl=False)


def fitted(text: str, stream: TextIO, indent: int = 5) -> str:
    """Lines as they are, or, where they go to a terminal, broken between words; what hangs over is indented, as a hint is."""
    if not stream.isatty():
        return text
    filler = textwrap.TextWrapper(shutil.get_terminal_size().columns, subsequent_indent=" " * indent, break_long_words=False,
                                  break_on_hyphens=False)
    return "".join(filler.fill(line) + "\n" for line in text.splitlines())


def ago(moment: str | None, now_s: float | None = None) -> str:
    """How long ago an RFC 3339 time in UTC was, in one number and unit."""
    if not moment:
        return "-"
    then = calendar.timegm(time.strptime(moment[:19], "%Y-%m-%dT%H:%M:%S"))
    seconds = max(0, int((time.time() if now_s is None else now_s) - then))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


class RunPrinter:
    """Writes a run's events for a person, or its bytes for a pipe, as they arrive."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._line_open = False        # the terminal's cursor stands behind text of ours
        self.outcome: dict[str, Any] | None = None

    def show(self, event: dict[str, Any]) -> None:
        kind = event["type"]
        if kind in ENDINGS:
            self.outcome = event
        if self._as_json:
            print_json(event)
        elif kind == "output":
            self._output(event)
        elif kind in ENDINGS:
            self._ending(event)
        else:
            self._note(event_note(event))

    def _output(self, event: dict[str, Any]) -> None:
        answer = event["channel"] in ANSWER_CHANNELS
        stream = sys.stdout if answer else sys.stderr
        if stream.isatty():
            stream.write(safe_tty(event["text"]))
            self._line_open = not event["text"].endswith("\n") if event["text"] else self._line_open
        else:
            exact = event.get("bytes_b64")
            stream.buffer.write(base64.b64decode(exact) if exact else event["text"].encode("utf-8", "surrogatepass"))
        stream.flush()

    def _note(self, text: str) -> None:
        if text:
            self._end_line()
            click.echo(safe_line(f"[{text}]"), err=True)

    def _ending(self, event: dict[str, Any]) -> None:
        self._end_line()
        kind, code = event["type"], event.get("code") or ""
        if kind != "completed":
            sentence = event.get("message") or code or "The run ended so."
            said = sentence if kind == "cancelled" else f"{kind}: {sentence}"
            click.echo(f"iop: {safe_line(said)}" + (f" [{safe_line(code)}]" if code not in ("", kind) else ""), err=True)

    def _end_line(self) -> None:
        if self._line_open:
            click.echo(file=sys.stdout if sys.stdout.isatty() else sys.stderr)
            self._line_open = False
