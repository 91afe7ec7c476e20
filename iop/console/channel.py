"""One SSH session channel: a terminal or a pipe, one shell or one command, and its flow control."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Protocol

from twisted.conch.ssh import channel, common
from twisted.conch.ssh.connection import EXTENDED_DATA_STDERR
from twisted.conch.ssh.session import parseRequest_pty_req, parseRequest_window_change
from twisted.internet.interfaces import IReactorTime

from iop.commands import Caller, CommandTable
from iop.console.keys import AuthorizedKey
from iop.console.oneshot import OneShot
from iop.console.shell import Shell

WIDEST = 1000     # cells; what a client may claim
_INTERRUPTS = (b"INT", b"TERM", b"HUP", b"QUIT")


class Host(Protocol):
    """What a session needs of the server."""

    table: CommandTable
    context_for: Callable[[Caller], object]
    name: str
    clock: IReactorTime

    def python_for(self, key: AuthorizedKey) -> Any: ...


class Runs(Protocol):
    """What runs in a session: a Shell or a OneShot."""

    def begin(self) -> None: ...
    def received(self, data: bytes) -> None: ...
    def input_ended(self) -> None: ...
    def interrupt(self) -> None: ...
    def resized(self) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def closed(self) -> None: ...


class SessionChannel(channel.SSHChannel):
    """A session. `pty`: the client has a terminal, `width` by `height` cells. `full`: the client takes no more now."""

    name = b"session"

    def __init__(self, server: Host, key: AuthorizedKey, **rest: Any) -> None:
        super().__init__(**rest)
        self._server, self._key = server, key
        self._runs: Runs | None = None
        self.pty = self.full = False
        self.width, self.height = 0, 0
        self._requests = {b"pty-req": self._pty_requested, b"window-change": self._window_changed, b"shell": self._shell,
                          b"exec": self._exec, b"signal": self._signalled}

    def channelOpen(self, specificData: bytes) -> None:
        """Nothing happens before the first request."""

    def requestReceived(self, requestType: bytes, data: bytes) -> int:
        # No env, no subsystem (sftp), no agent, no X11: what is not in the table is refused.
        handle = self._requests.get(requestType)
        return handle(data) if handle is not None else 0

    def _pty_requested(self, data: bytes) -> int:
        _, size, _ = parseRequest_pty_req(data)
        self.pty = True
        self._resize(size)
        return 1

    def _window_changed(self, data: bytes) -> int:
        self._resize(parseRequest_window_change(data))
        if self._runs is not None:
            self._runs.resized()
        return 1

    def _resize(self, size: tuple[int, int, int, int]) -> None:
        rows, columns = size[:2]
        self.width = min(columns, WIDEST) or 80
        self.height = min(rows, WIDEST) or 24

    def _shell(self, data: bytes) -> int:
        caller = self._caller()
        return self._run(Shell(self, self._server.table, caller, self._server.context_for, self._server.name,
                               lambda: self._server.python_for(self._key)))

    def _exec(self, data: bytes) -> int:
        line = common.getNS(data)[0].decode("utf-8", "replace")
        return self._run(OneShot(self, self._server.table, self._caller(), self._server.context_for, line))

    def _run(self, runs: Runs) -> int:
        if self._runs is not None:
            return 0
        self._runs = runs
        # After the answer to this request, which a client awaits before it looks at output.
        self._server.clock.callLater(0, self._begin)
        return 1

    def _begin(self) -> None:
        if self._runs is not None and not self.localClosed:
            self._runs.begin()

    def _caller(self) -> Caller:
        return Caller("console", self._key.principal, self._key.scopes)

    def _signalled(self, data: bytes) -> int:
        if self._runs is not None and common.getNS(data)[0] in _INTERRUPTS:
            self._runs.interrupt()
        return 1

    def dataReceived(self, data: bytes) -> None:
        if self._runs is not None:
            self._runs.received(data)

    def extReceived(self, dataType: int, data: bytes) -> None:
        """Nothing is read from there."""

    def eofReceived(self) -> None:
        if self._runs is not None:
            self._runs.input_ended()

    def closeReceived(self) -> None:
        self.buf, self.extBuf = b"", []   # nobody takes it any more, and waiting for it would keep the channel
        self.loseConnection()

    def closed(self) -> None:
        runs, self._runs = self._runs, None
        if runs is not None:
            runs.closed()

    def write_text(self, text: str) -> None:
        """Text that is safe already, to standard output; a terminal gets its line ends."""
        self.write(self._encode(text))

    def write_error(self, text: str) -> None:
        """The same to standard error; a terminal has but one stream."""
        if self.pty:
            self.write_text(text)
        elif text:
            self.writeExtended(EXTENDED_DATA_STDERR, self._encode(text))

    def _encode(self, text: str) -> bytes:
        return (text.replace("\n", "\r\n") if self.pty else text).encode("utf-8", "backslashreplace")

    def exit(self, code: int) -> None:
        """The end of what ran: its exit status, then the channel closes once all is sent."""
        if not self.localClosed and not self.closing:
            self.conn.sendRequest(self, b"exit-status", struct.pack(">L", code))
            self.loseConnection()

    def stopWriting(self) -> None:
        self.full = True
        if self._runs is not None:
            self._runs.pause()

    def addWindowBytes(self, data: int) -> None:
        super().addWindowBytes(data)
        if self.full and not self.buf and not self.extBuf:
            self.full = False
            if self._runs is not None:
                self._runs.resume()
