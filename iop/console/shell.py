"""The interactive console: a prompt, one command at a time, its output, and the prompt again.

::

    EDITING --enter--> BUSY (a command or completion is awaited) --> STREAMING (tail, run) --> EDITING
       |                                                                 |
       +--/python--> PYTHON --Ctrl-D--> EDITING       Ctrl-C ends what is awaited or streamed

What is typed while a command is awaited waits for the prompt.
"""

from __future__ import annotations

import os
import shlex
from collections import deque
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from iop.commandline import Call
from iop.commands import Caller, CommandTable
from iop.console.editor import KeyReader, LineEditor
from iop.console.show import Terminal, error_of, shown_error, shown_items, shown_note, shown_result
from iop.errors import Forbidden, IOPError
from iop.interfaces import IStream
from iop.rendering import cells, safe_line

MOST_KEYS_AHEAD = 65536
MOST_SHOWN = 100        # words of a completion
_OWN_WORDS = ("exit", "python", "quit")
_CLEAR = b"\x1b[H\x1b[2J"


class Shell:
    """Runs in a SessionChannel that has a terminal, until Ctrl-D."""

    def __init__(self, channel: Terminal, table: CommandTable, caller: Caller, context_for: Callable[[Caller], object],
                 name: str, python_for: Callable[[], Any]) -> None:
        self._channel, self._table, self._caller, self._context_for = channel, table, caller, context_for
        self._name, self._python_for = name, python_for
        self._editor = LineEditor(f"{safe_line(name)}> ")
        self._reader = KeyReader()
        self._keys: deque[str] = deque()
        self._awaited: object | None = None     # what is awaited: a token that only its answer may clear
        self._stream: Any = None
        self._python: Any = None
        self._line_open = False                 # output has stopped within a line
        self._no_more = False                   # the client will type nothing any more
        self._working = self._over = False

    # --- the session

    def begin(self) -> None:
        if not self._channel.pty:
            self._channel.write_error("error: there is no terminal here; give a command, or use ssh -t.\n")
            self._leave(2)
            return
        self._channel.write_text(f"IOP console of {safe_line(self._name)}. /help lists the commands, Tab completes, "
                                 "Ctrl-D leaves.\n")
        self._draw()

    def received(self, data: bytes) -> None:
        if self._python is not None:
            self._python.received(data)
            return
        for key in self._reader.feed(data):
            if key == "interrupt" and self._busy:
                self._keys.clear()
                self.interrupt()
            elif len(self._keys) < MOST_KEYS_AHEAD:
                self._keys.append(key)
        self._work()

    def input_ended(self) -> None:
        self._no_more = True
        if self._channel.pty and not self._busy:
            self._leave(0)

    def interrupt(self) -> None:
        """Ctrl-C: end what goes on, or drop the line."""
        if not self._busy:
            self._editor.press("end")
            self._draw()
        stream, self._stream, self._awaited = self._stream, None, None
        self._channel.write_text("^C\n")
        self._line_open = False
        self._editor.reset()
        if stream is not None:
            stream.stop()
        self._draw()

    def resized(self) -> None:
        if self._python is not None:
            self._python.resized()
        elif not self._busy:
            self._draw()

    def pause(self) -> None:
        if self._stream is not None:
            self._stream.pause()

    def resume(self) -> None:
        if self._stream is not None:
            self._stream.resume()

    def closed(self) -> None:
        self._over = True
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.stop()
        self._python = None

    @property
    def _busy(self) -> bool:
        return self._awaited is not None or self._stream is not None or self._python is not None

    def _leave(self, code: int) -> None:
        self._over = True
        self._channel.exit(code)

    # --- keys

    def _work(self) -> None:
        """Press the keys that wait, until one of them starts something that is awaited."""
        if self._working:
            return   # a command that ended at once: the loop below goes on by itself
        self._working, changed = True, False
        try:
            while self._keys and not self._busy and not self._over:
                asked = self._editor.press(self._keys.popleft())
                changed = not asked
                if asked:
                    self._asked(asked)
        finally:
            self._working = False
        if changed and not self._busy and not self._over:
            self._draw()

    def _asked(self, key: str) -> None:
        if key == "enter":
            self._draw_done()
            self._run(self._editor.take())
        elif key == "complete":
            self._complete()
        elif key == "interrupt":
            self.interrupt()
        elif key == "clear":
            self._channel.write(_CLEAR)
            self._draw()
        elif key == "eof":
            self._channel.write_text("\n")
            self._leave(0)

    def _draw(self) -> None:
        if self._line_open:
            self._channel.write_text("\n")
            self._line_open = False
        self._channel.write(self._editor.draw(self._channel.width).encode("utf-8", "backslashreplace"))

    def _draw_done(self) -> None:
        """Leave the line as it stands and go below it."""
        self._editor.press("end")
        self._draw()
        self._channel.write_text("\n")

    # --- completion

    def _complete(self) -> None:
        before = self._editor.text[:self._editor.cursor]
        token = self._awaited = object()
        waiting = self._table.complete(before, self._context())
        waiting.addCallback(self._completed, token, before).addErrback(self._not_completed, token)

    def _completed(self, words: list[str], token: object, before: str) -> None:
        if token is not self._awaited:
            return
        self._awaited = None
        last = before.rpartition(" ")[2]
        if " " not in before.strip() and last == before:
            slash = "/" if last.startswith("/") else ""
            words = sorted({*words, *(slash + word for word in _OWN_WORDS if (slash + word).startswith(last))})
        shared = os.path.commonprefix(words)
        if len(words) == 1:
            self._editor.insert(shlex.quote(words[0])[len(last):] + " ")
        elif len(shared) > len(last):
            self._editor.insert(shared[len(last):])
        elif words:
            self._channel.write_text("\n" + _columns([safe_line(word) for word in words], self._channel.width))
        self._draw()
        self._work()

    def _not_completed(self, failure: Failure, token: object) -> None:
        error_of(failure)
        if token is self._awaited:
            self._awaited = None
            self._draw()
            self._work()

    # --- commands

    def _run(self, line: str) -> None:
        words = line.split()
        if not words:
            self._draw()
        elif words[0].removeprefix("/") in ("exit", "quit"):
            self._leave(0)
        elif words[0].removeprefix("/") == "python":
            self._start_python()
        else:
            self._start(line)

    def _start(self, line: str) -> None:
        token = self._awaited = object()
        try:
            call = self._table.parse(line)
        except IOPError as error:
            self._finish(error, False)
            return
        waiting: Deferred[Any] = self._table.call(call, self._context(), self._caller.scopes)
        waiting.addCallback(self._answered, token, call).addErrback(self._failed, token, call)

    def _context(self) -> object:
        return self._context_for(self._caller.again())

    def _answered(self, result: Any, token: object, call: Call) -> None:
        current = token is self._awaited and not self._over
        if IStream.providedBy(result):
            if not current:
                result.stop()   # it was given up with Ctrl-C before it began
                return
            self._begin_stream(result, call)
        elif current:
            self._channel.write_text(shown_result(call, result, self._channel.width))
            self._finish(None, call.json)

    def _begin_stream(self, stream: Any, call: Call) -> None:
        self._awaited, self._stream = None, stream
        if self._channel.full:
            stream.pause()
        if note := shown_note(call, stream):
            self._channel.write_text(note)

        def write(items: list[dict[str, Any]]) -> None:
            if stream is self._stream:
                for _, text in shown_items(call, stream, items):
                    self._channel.write_text(text)
                    self._line_open = not text.endswith("\n")

        def done(error: IOPError | None) -> None:
            if stream is self._stream:
                self._finish(error, call.json)

        stream.start(write, done)

    def _failed(self, failure: Failure, token: object, call: Call) -> None:
        error = error_of(failure)
        if token is self._awaited:
            self._finish(error, call.json)

    def _finish(self, error: IOPError | None, json: bool) -> None:
        self._awaited = self._stream = None
        if self._over:
            return
        if error is not None:
            if self._line_open:
                self._channel.write_text("\n")
                self._line_open = False
            self._channel.write_text(shown_error(error, json, self._table))
        self._draw()
        self._work()
        if self._no_more and not self._busy:
            self._leave(0)

    # --- python

    def _start_python(self) -> None:
        made = self._python_for()
        if isinstance(made, str):
            self._finish(Forbidden(made), False)
            return
        self._python = made(self._caller.again().source, self._channel, self._python_left)
        self._python.begin()

    def _python_left(self) -> None:
        self._python = None
        if not self._over:
            self._channel.write_text("\n")
            self._draw()


def _columns(words: list[str], width: int) -> str:
    shown = words[:MOST_SHOWN]
    column = max(map(cells, shown)) + 2
    each = max(width // column, 1)
    rows = [shown[at:at + each] for at in range(0, len(shown), each)]
    text = "".join("".join(word + " " * (column - cells(word)) for word in row).rstrip() + "\n" for row in rows)
    return text + (f"... and {len(words) - MOST_SHOWN} more\n" if len(words) > MOST_SHOWN else "")
