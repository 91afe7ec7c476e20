"""One command given to ssh (``ssh edge nodes --json``): output to stdout, errors to stderr, an exit status."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from iop.commandline import Call
from iop.commands import Caller, CommandTable
from iop.console.show import Terminal, error_of, shown_error, shown_items, shown_note, shown_result
from iop.errors import Cancelled, IOPError
from iop.exits import exit_code
from iop.interfaces import IStream

CTRL_C = b"\x03"


class OneShot:
    """Runs in a SessionChannel until its command has ended."""

    def __init__(self, channel: Terminal, table: CommandTable, caller: Caller,
                 context_for: Callable[[Caller], object], line: str) -> None:
        self._channel, self._table, self._caller, self._context_for = channel, table, caller, context_for
        self._line = line
        self._call: Call | None = None
        self._waiting: Deferred[Any] | None = None
        self._stream: Any = None
        self._over = False

    def begin(self) -> None:
        try:
            self._call = self._table.parse(self._line)
        except IOPError as error:
            return self._fail(error)
        waiting = self._waiting = self._table.call(self._call, self._context_for(self._caller), self._caller.scopes)
        waiting.addCallback(self._answered).addErrback(self._failed)
        return None

    def _answered(self, result: Any) -> None:
        self._waiting = None
        if not IStream.providedBy(result):
            if not self._over:
                self._channel.write_text(shown_result(self._call, result, self._channel.width))
                code = self._call.command.exit_code
                self._exit(code(result) if code is not None else 0)
            return
        self._stream = result
        if self._over:
            result.stop()
            return
        if self._channel.full:
            result.pause()
        if note := shown_note(self._call, result):
            self._channel.write_error(note)
        result.start(self._show, self._done)

    def _show(self, items: list[dict[str, Any]]) -> None:
        for channel, text in shown_items(self._call, self._stream, items):
            (self._channel.write_error if channel == "err" else self._channel.write_text)(text)

    def _done(self, error: IOPError | None) -> None:
        self._stream = None
        if error is not None:
            self._fail(error)
        else:
            self._exit(0)

    def _failed(self, failure: Failure) -> None:
        self._waiting = None
        self._fail(error_of(failure))

    def _fail(self, error: IOPError) -> None:
        if not self._over:
            json = self._call.json if self._call is not None else self._line.rstrip().endswith("--json")
            self._channel.write_error(shown_error(error, json, self._table))
            self._exit(exit_code(error.code))

    def _exit(self, code: int) -> None:
        if not self._over:
            self._over = True
            self._channel.exit(code)

    def received(self, data: bytes) -> None:
        if self._channel.pty and CTRL_C in data:
            self.interrupt()

    def input_ended(self) -> None:
        """Commands read no input."""

    def interrupt(self) -> None:
        if not self._over:
            self._exit(exit_code(Cancelled.code))
            self._let_go()

    def closed(self) -> None:
        self._over = True
        self._let_go()

    def _let_go(self) -> None:
        # The waiting command goes on to its end, since it may be half-way through a change; its answer is dropped.
        if self._stream is not None:
            self._stream.stop()

    def resized(self) -> None:
        """What is printed already stays as it is."""

    def pause(self) -> None:
        if self._stream is not None:
            self._stream.pause()

    def resume(self) -> None:
        if self._stream is not None:
            self._stream.resume()
