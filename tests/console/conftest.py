"""A console on loopback with a fake edge behind it, and a real ssh client in front of it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import pytest_twisted
from twisted.internet import reactor
from twisted.internet.defer import Deferred, succeed
from twisted.internet.error import ProcessDone
from twisted.internet.protocol import ProcessProtocol
from twisted.internet.task import deferLater

from iop.config import ConsoleListen
from iop.console.server import ConsoleServer
from iop.edge.commands import edge_commands
from iop.testing.edge import FakeEdge

DEADLINE_S = 20


def need(tool: str) -> None:
    """Skip without `tool`, unless its absence is a fault here."""
    if shutil.which(tool) is None:
        if os.environ.get("IOP_REQUIRE_TOOLS") == "1":
            pytest.fail(f"{tool} is not installed")
        pytest.skip(f"{tool} is not installed")


async def waited_until(condition: Callable[[], object], what: str = "") -> object:
    """Wait for a condition, with a deadline."""
    ends = reactor.seconds() + DEADLINE_S
    while True:
        value = condition()
        if isinstance(value, Deferred):
            value = await value
        if value:
            return value
        if reactor.seconds() > ends:
            raise AssertionError(f"waited {DEADLINE_S} s in vain for {what or condition}")
        await deferLater(reactor, 0.02)


class Ran(ProcessProtocol):
    """A program under way; `ended` fires with its exit code."""

    def __init__(self) -> None:
        self.out, self.err = b"", b""
        self.ended: Deferred[int] = Deferred()

    def outReceived(self, data: bytes) -> None:
        self.out += data

    def errReceived(self, data: bytes) -> None:
        self.err += data

    def processEnded(self, reason: object) -> None:
        self.ended.callback(0 if reason.check(ProcessDone) else reason.value.exitCode)

    def kill(self) -> None:
        if self.transport.pid:
            self.transport.signalProcess("KILL")


class Console:
    """The server, its fake edge, and how to reach it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.edge = folder, FakeEdge()
        self.audited: list[tuple[object, str, object]] = []
        self.audit_answer: Callable[[], Deferred] = lambda: succeed(None)
        self.programs: list[Ran] = []
        self.sockets: list[Path] = []

    def key(self, name: str, *, options: str = "", authorized: bool = True, kind: str = "ed25519") -> Path:
        file = self.folder / name
        subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-C", name, "-f", str(file)], check=True)
        if authorized:
            self.authorize(file, options)
        return file

    def authorize(self, file: Path, options: str = "", into: str = "authorized_keys") -> None:
        target = self.folder / into
        with open(target, "a", opener=lambda path, flags: os.open(path, flags, 0o600)) as stream:
            stream.write(f"{options} {file.with_suffix('.pub').read_text()}".lstrip())

    def listen(self, *, manhole: bool = False, namespace: dict | None = None) -> None:
        listen = ConsoleListen(manhole=manhole)
        self.server = ConsoleServer(edge_commands(self.edge), lambda caller: caller, listen,
                                    lambda name: str(self.folder / name), reactor, namespace, self._audit, "edge-1")
        self.port = reactor.listenTCP(0, self.server, interface="127.0.0.1")
        self.number = self.port.getHost().port
        public = self.server.publicKeys[b"ssh-ed25519"].toString("OPENSSH").decode()
        (self.folder / "known_hosts").write_text(f"[127.0.0.1]:{self.number} {public}\n")

    def _audit(self, source: object, action: str, detail: object) -> Deferred:
        self.audited.append((source, action, detail))
        return self.audit_answer()

    def command(self, *more: str, key: str = "me", options: tuple[str, ...] = ()) -> list[str]:
        return ["ssh", "-F", "none", "-p", str(self.number), "-i", str(self.folder / key),
                "-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes", "-o", "LogLevel=INFO",
                "-o", f"UserKnownHostsFile={self.folder / 'known_hosts'}", *options, "someone@127.0.0.1", *more]

    def start(self, arguments: list[str]) -> Ran:
        program = Ran()
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "LANG": "C.UTF-8", "TERM": "xterm"}
        reactor.spawnProcess(program, arguments[0], arguments, env=environment)
        self.programs.append(program)
        return program

    async def ssh(self, *more: str, **rest: object) -> tuple[int, str, str]:
        """Run ssh with a command: (exit code, stdout, stderr)."""
        program = self.start(self.command(*more, **rest))
        program.transport.closeStdin()
        code = await program.ended.addTimeout(DEADLINE_S, reactor)
        return code, program.out.decode(), program.err.decode()

    async def stop(self) -> None:
        for program in self.programs:
            program.kill()
        for program in self.programs:
            if not program.ended.called:
                await program.ended
        if hasattr(self, "port"):
            await self.port.stopListening()
            self.server.stop()
            await waited_until(lambda: not self.server.connections, "the connections to close")


@pytest.fixture
def need_tool() -> Callable[[str], None]:
    return need


@pytest.fixture
def until() -> Callable[..., object]:
    return waited_until


@pytest.fixture
def console(tmp_path: Path) -> Iterator[Console]:
    need("ssh")
    made = Console(tmp_path)
    made.key("me")
    made.listen()
    yield made
    pytest_twisted.blockon(Deferred.fromCoroutine(made.stop()))


@pytest.fixture
def bare_console(tmp_path: Path) -> Iterator[Console]:
    """One that the test sets up itself."""
    need("ssh")
    made = Console(tmp_path)
    yield made
    pytest_twisted.blockon(Deferred.fromCoroutine(made.stop()))
