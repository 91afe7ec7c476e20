"""The processes of `iop up`: started, watched, started again, and ended. Plain polling; no reactor."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from iop.errors import ConfigError, IOPError
from iop.exits import CONFIG_REFUSED
from iop.files import ready_pid, remove_ready

STOP_S = 25.0            # systemd gives a service 30 s to stop; a node ends its programs in at most 8 s of them
RESTART_S = 0.25         # started again within 2 s
LATER_S = 1.5            # one that does not come up
ATTEMPTS = 10
READY_S = 30.0           # on a slow machine the imports alone take 3 s
LOG_BYTES = 16 * 1024 * 1024
_PR_SET_PDEATHSIG = 1    # prctl(2)


class ChildFailed(IOPError):
    """A process of `iop up` does not start."""

    code = "child_failed"


class Child:
    """One twistd process: its command, its folder, and the file that says that it is ready."""

    def __init__(self, name: str, tap: str, config: Path, ready_file: str) -> None:
        self.name = name
        self._argv = [sys.executable, "-P", "-m", "iop.tap", "--nodaemon", "--pidfile=", tap, "-c", str(config)]
        self._folder = config.parent
        self._ready_file = config.parent / ready_file
        self._process: subprocess.Popen[bytes] | None = None
        self.was_ready = False
        self._started_s = 0.0
        self.log = config.parent / "log"

    @property
    def pid(self) -> int:
        return self._process.pid if self._process else 0

    @property
    def exit_code(self) -> int | None:
        return self._process.poll() if self._process else None

    def start(self) -> None:
        if self.log.exists() and self.log.stat().st_size > LOG_BYTES:
            self.log.replace(self.log.with_suffix(".1"))
        remove_ready(self._ready_file)
        descriptor = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            self._process = subprocess.Popen(self._argv, cwd=self._folder, stdin=subprocess.DEVNULL, stdout=descriptor,
                                             stderr=descriptor, start_new_session=True, preexec_fn=_die_with_parent)
        finally:
            os.close(descriptor)
        self.was_ready = False
        self._started_s = time.monotonic()

    def is_ready(self) -> bool:
        """Whether this very process has said that it is at work."""
        ready = ready_pid(self._ready_file) == self.pid
        self.was_ready = self.was_ready or ready
        return ready

    def overdue(self) -> bool:
        return not self.was_ready and time.monotonic() - self._started_s > READY_S

    def signal(self, number: int) -> None:
        if self._process and self._process.poll() is None:
            self._process.send_signal(number)

    def end(self, deadline_s: float) -> None:
        """Wait for the end that TERM asked for; KILL at the deadline (of time.monotonic). Returns when it has ended."""
        if self._process is None:
            return
        try:
            self._process.wait(max(0.0, deadline_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.signal(signal.SIGKILL)
            self._process.wait()

    def last_words(self) -> str:
        """The last lines of its log, for the person who waits."""
        try:
            lines = self.log.read_text(errors="replace").strip().splitlines()
        except OSError:
            return ""
        return "\n".join(lines[-5:])


class Children:
    """All of them, the edge first. `ready` is called when all are ready, and again after each new start.

    `changed` is called before that, as soon as somebody has a new pid and the edge is where it was.
    """

    def __init__(self, children: list[Child], tell: Callable[[str], None], changed: Callable[[], object],
                 ready: Callable[[], None]) -> None:
        self._children = children
        self._tell = tell
        self._changed = changed
        self._ready = ready
        self._failures: dict[str, int] = {}
        self._restart_at: dict[str, float] = {}
        self._moved = False                # somebody has a new pid that `changed` has not told
        self._stale = True                 # and `ready` neither

    def run(self, signals: Signals) -> None:
        """Start and watch until a signal asks for the end; then end them, the edge last. Raises ChildFailed."""
        try:
            for child in self._children:
                child.start()
                self._await_first(child, signals)
            while not signals.stop:
                self._watch()
                signals.wait(0.05 if self._stale or self._restart_at else 0.5)
                if signals.take_reload():
                    for child in self._children:
                        child.signal(signal.SIGHUP)
        finally:
            _stop(self._children[1:])    # the nodes first, together: the edge takes their endings
            _stop(self._children[:1])

    def _await_first(self, child: Child, signals: Signals) -> None:
        while not signals.stop and not child.is_ready():
            if child.exit_code is not None:
                raise _failure(child)
            if child.overdue():
                raise ChildFailed(f"{child.name} was not ready within {READY_S:.0f} s.", hint=child.last_words())
            signals.wait(0.05)
        if not signals.stop:
            self._tell(f"{child.name} is ready (pid {child.pid})")

    def _watch(self) -> None:
        now = time.monotonic()
        for child in self._children:
            if child.exit_code is not None and child.name not in self._restart_at:
                self._ended(child, now)
            elif child.name in self._restart_at and now >= self._restart_at[child.name]:
                del self._restart_at[child.name]
                child.start()
                self._moved = True
        if self._moved and self._children[0].is_ready():
            self._moved = False
            self._changed()
        if self._stale and not self._restart_at:
            ready = [child.is_ready() for child in self._children]   # each is asked, since each notes that it was
            if all(ready):
                self._stale = False
                self._ready()

    def _ended(self, child: Child, now: float) -> None:
        if child.exit_code == CONFIG_REFUSED:
            raise ConfigError(_failure(child).message, hint=f"{child.name} cannot start again, so all of it was stopped: "
                              "mend the file, then `iop up` again.")
        failures = 0 if child.was_ready else self._failures.get(child.name, 0) + 1
        self._failures[child.name] = failures       # in a row
        if failures > ATTEMPTS:
            raise _failure(child)
        self._tell(f"{child.name} ended ({_how(child.exit_code or 0)}); starting it again")
        self._restart_at[child.name] = now + (RESTART_S if failures < 3 else LATER_S)
        self._stale = True


def _stop(children: list[Child]) -> None:
    deadline_s = time.monotonic() + STOP_S
    for child in children:
        child.signal(signal.SIGTERM)
    for child in children:
        child.end(deadline_s)


class Signals:
    """INT and TERM ask for the end, HUP for reading the configuration again, CHLD only wakes us."""

    def __init__(self) -> None:
        self.stop = False
        self._reload = False
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def install(self) -> None:
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, self._received)

    def wait(self, seconds: float) -> None:
        """At most `seconds`, less when a signal comes."""
        if select.select([self._read], [], [], seconds)[0]:
            with suppress(BlockingIOError):
                os.read(self._read, 4096)

    def take_reload(self) -> bool:
        asked, self._reload = self._reload, False
        return asked

    def _received(self, number: int, frame: object) -> None:
        if number in (signal.SIGINT, signal.SIGTERM):
            self.stop = True
        elif number == signal.SIGHUP:
            self._reload = True


def end_leftovers(folder: Path, tell: Callable[[str], None]) -> None:
    """End what an `iop up` that was killed left running on this folder: two edges must not write one history."""
    left = _ours(folder)
    for pid in left:
        tell(f"ending process {pid}, which an earlier `iop up` left")
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_S
    while left and time.monotonic() < deadline:
        time.sleep(0.1)
        left = _ours(folder)
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _ours(folder: Path) -> list[int]:
    """The processes whose command line is a child's of this very folder."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            arguments = place.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"iop.tap" in arguments and any(word.startswith(os.fsencode(folder) + b"/") for word in arguments):
            found.append(int(place.parent.name))
    return found


def _failure(child: Child) -> IOPError:
    words = child.last_words()
    if child.exit_code == CONFIG_REFUSED:
        return ConfigError(words.splitlines()[-1] if words else f"{child.name} refuses its configuration.")
    return ChildFailed(f"{child.name} ended ({_how(child.exit_code or 0)}) before it was ready; its log is {child.log}.",
                       hint=words)


def _how(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"


def _die_with_parent() -> None:
    """In the child: TERM when `iop up` itself is killed, so that nothing is left that nobody watches (prctl(2))."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
