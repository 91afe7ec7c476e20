"""How results and streams look in a session; the one place where the console's text is made safe."""

from __future__ import annotations

import re
from typing import Any, Protocol

from twisted.logger import Logger
from twisted.python.failure import Failure

from iop.commandline import Call
from iop.commands import CommandTable
from iop.errors import IOPError
from iop.rendering import error_text, json_line, result_text, safe_tty
from iop.runs import new_run_id

log = Logger()

_COMMAND = re.compile(r"`iop ([a-z-]+)")


class ShownError(IOPError):
    """An error in the console's words; for showing only."""


class Terminal(Protocol):
    """What a shell or a command is given to write to: a SessionChannel."""

    pty: bool
    full: bool
    width: int
    height: int

    def write(self, data: bytes) -> None: ...
    def write_text(self, text: str) -> None: ...
    def write_error(self, text: str) -> None: ...
    def exit(self, code: int) -> None: ...


def shown_result(call: Call, result: Any, width: int) -> str:
    """A result as text that is safe, ending in a newline. `width` 0: as wide as it is."""
    if call.json:
        return json_line(result) + "\n"
    command = call.command
    if command.text is not None:
        return safe_tty(command.text(result))
    return safe_tty(result_text(result, command.columns, command.rows, width))


def shown_items(call: Call, stream: Any, items: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Items of a stream as (channel, text that is safe), neighbours of one channel joined."""
    if call.json:
        return [("out", "".join(json_line(item) + "\n" for item in items))]
    shown: list[tuple[str, str]] = []
    for channel, text in map(stream.text, items):
        if shown and shown[-1][0] == channel:
            shown[-1] = (channel, shown[-1][1] + safe_tty(text))
        elif text:
            shown.append((channel, safe_tty(text)))
    return shown


def shown_note(call: Call, stream: Any) -> str:
    """What people are told before a stream's first item."""
    return safe_tty(f"[{stream.note}]\n") if stream.note and not call.json else ""


def shown_error(error: IOPError, json: bool, table: CommandTable) -> str:
    """An error as text that is safe. Its hint may name the `iop` command; people who are here type the same words bare."""
    if not json and error.hint:
        hint = _COMMAND.sub(lambda match: f"`{match[1]}" if match[1] in table.commands else match[0], error.hint)
        error = ShownError(error.message, hint=hint)
    return error_text(error, json)


def error_of(failure: Failure) -> IOPError:
    """The IOPError of a failed command; anything else is a fault of ours, logged under an id that the user is told."""
    if isinstance(failure.value, IOPError):
        return failure.value
    error_id = new_run_id()
    log.failure("a console command failed ({error_id})", failure=failure, error_id=error_id)
    return IOPError(f"Something went wrong inside IOP; look for {error_id} in the log.")
