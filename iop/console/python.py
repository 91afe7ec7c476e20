"""/python: a real manhole, Python inside the running process, for the few keys that the configuration allows it.

Every line is on the audit trail before it is executed; a line that cannot be audited is not executed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from twisted.conch.insults import insults
from twisted.conch.manhole import Manhole
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from iop.console.show import Terminal
from iop.rendering import safe_tty

log = Logger()
BANNER = ("Python inside the running process: names here are its own objects, a call that blocks stops all its work.\n"
          "Every line is written to the audit trail before it is executed. Ctrl-D leaves.\n")
_REPLACE_MODE = b"\x1b[4l"   # RecvLine sets insert mode, which the shell's drawing does not expect
_NOT_AUDITED = "not executed: the audit trail cannot be written\n"


class AuditedManhole(Manhole):
    """A manhole whose lines wait for the audit, and whose output is made safe."""

    def __init__(self, namespace: dict[str, object], audit: Callable[[str], Deferred[Any]], left: Callable[[], None]) -> None:
        super().__init__(namespace)
        self._audit, self._left = audit, left
        self._waiting = self._gone = False
        self._keys: deque[tuple[bytes, object]] = deque()

    def initializeScreen(self) -> None:
        # Without the reset of the whole terminal that conch begins with.
        self.terminal.write(self.ps[self.pn])
        self.setInsertMode()

    def terminalSize(self, width: int, height: int) -> None:
        # Without clearing the screen.
        self.width, self.height = width, height

    def keystrokeReceived(self, keyID: bytes, modifier: object) -> None:
        if self._gone:
            return   # what was typed behind the Ctrl-D in one go is not for Python
        if self._waiting:
            self._keys.append((keyID, modifier))
        else:
            super().keystrokeReceived(keyID, modifier)

    def lineReceived(self, line: bytes) -> None:
        self._waiting = True
        waiting = maybeDeferred(self._audit, line.decode("utf-8", "replace"))
        waiting.addCallbacks(lambda _: self._execute(line), self._not_audited)
        waiting.addErrback(lambda failure: log.failure("a line of /python failed", failure=failure))

    def _execute(self, line: bytes) -> None:
        try:
            super().lineReceived(line)
        except SystemExit:
            self.handle_QUIT()
        self._go_on()

    def _not_audited(self, failure: Failure) -> None:
        log.failure("a line of /python could not be audited and was not executed", failure=failure)
        self.interpreter.resetBuffer()
        self.pn = 0
        self.addOutput(_NOT_AUDITED)
        self.terminal.write(self.ps[self.pn])
        self._go_on()

    def _go_on(self) -> None:
        self._waiting = False
        while self._keys and not (self._waiting or self._gone):
            super().keystrokeReceived(*self._keys.popleft())

    def addOutput(self, data: str | bytes, isAsync: bool | None = None) -> None:
        if self._gone:
            return   # a Deferred of an earlier line
        text = data.decode("utf-8", "replace") if isinstance(data, bytes) else data
        super().addOutput(safe_tty(text).encode("utf-8", "backslashreplace"), isAsync)

    def handle_QUIT(self) -> None:
        self._gone = True
        self._left()


class Python:
    """A manhole in a SessionChannel, until it is left."""

    def __init__(self, namespace: dict[str, object], audit: Callable[[str], Deferred[Any]], channel: Terminal,
                 left: Callable[[], None]) -> None:
        self._channel, self._left_shell = channel, left
        self._terminal = insults.ServerProtocol(AuditedManhole, namespace, audit, self._left)

    def begin(self) -> None:
        self._channel.write_text(BANNER)
        self._terminal.makeConnection(_Wire(self._channel.write, self._left))
        self.resized()

    def received(self, data: bytes) -> None:
        self._terminal.dataReceived(data)

    def resized(self) -> None:
        self._terminal.terminalProtocol.terminalSize(self._channel.width, self._channel.height)

    def _left(self) -> None:
        self._channel.write(_REPLACE_MODE)
        self._left_shell()


class _Wire:
    """The transport that conch's terminal writes to."""

    def __init__(self, write: Callable[[bytes], None], close: Callable[[], None]) -> None:
        self.write, self.loseConnection = write, close
