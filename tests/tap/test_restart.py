"""A start in place: what is checked before, in which order things stop, and what a stop meanwhile becomes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.error import ReactorNotRunning
from twisted.internet.task import Clock

from iop.errors import ConfigError
from iop.tap import restart as module
from iop.tap.notify import Notifier
from iop.tap.restart import SUSPEND_S, Restart
from iop.tap.statelock import StateLock, read_held


class FakeReactor(Clock):
    """A clock that can be stopped; once, as a reactor."""

    def __init__(self) -> None:
        super().__init__()
        self.stopped = 0

    def stop(self) -> None:
        self.stopped += 1
        if self.stopped > 1:
            raise ReactorNotRunning

    def addSystemEventTrigger(self, phase: str, event: str, function: Callable[[], object]) -> None:
        assert (phase, event) == ("after", "shutdown")


class Case:
    """One Restart and what it was told."""

    def __init__(self, state: Path) -> None:
        self.reactor = FakeReactor()
        self.refusal = ""
        self.suspending: Deferred[None] = Deferred()
        self.asked = 0
        self.lock = StateLock(str(state))
        assert self.lock.take()
        self.restart = Restart(self.reactor, self.check, self.suspend, Notifier(self.reactor, {}), self.lock,
                               end_asked=lambda: False)

    def check(self) -> None:
        if self.refusal:
            raise ConfigError(self.refusal)

    def suspend(self) -> Deferred[None]:
        self.asked += 1
        return self.suspending


@pytest.fixture
def case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Case:
    monkeypatch.setattr(sys, "orig_argv", ["python", "twistd", "--nodaemon", "iop-node"])
    monkeypatch.setattr(module.atexit, "register", lambda function: None)
    return Case(tmp_path)


def test_a_configuration_that_is_refused_changes_nothing(case: Case, tmp_path: Path) -> None:
    case.refusal = "line 3: no."
    with pytest.raises(ConfigError):
        case.restart.ask()
    case.reactor.advance(SUSPEND_S)
    held = read_held(tmp_path)
    assert (case.asked, case.reactor.stopped, case.restart.suspended) == (0, 0, None)
    assert held is not None and (held.asked, held.refused) == (1, "line 3: no.")


def test_the_reactor_stops_once_the_node_is_suspended(case: Case, tmp_path: Path) -> None:
    case.restart.ask()
    case.reactor.advance(0)
    assert (case.asked, case.reactor.stopped) == (1, 0)
    case.suspending.callback(None)
    held = read_held(tmp_path)
    assert case.reactor.stopped == 1 and held is not None and (held.asked, held.refused) == (1, "")


def test_who_asks_is_answered_before_anything_is_closed(case: Case) -> None:
    case.restart.ask()
    assert case.asked == 0


def test_asking_twice_is_asking_once(case: Case) -> None:
    case.restart.ask()
    case.restart.ask()
    case.reactor.advance(0)
    assert case.asked == 1


@pytest.mark.parametrize("fails", [True, False])
def test_a_suspension_that_fails_or_hangs_is_what_a_crash_would_be(case: Case, fails: bool) -> None:
    case.restart.ask()
    case.reactor.advance(0)
    if fails:
        case.suspending.errback(ValueError("broken"))
    else:
        case.reactor.advance(SUSPEND_S)
    assert case.reactor.stopped == 1


def test_a_stop_meanwhile_waits_for_the_suspension(case: Case) -> None:
    case.restart.ask()
    case.reactor.stop()
    waiting = case.restart.suspended
    assert waiting is not None and not waiting.called
    case.reactor.advance(0)
    case.suspending.callback(None)
    assert waiting.called and case.reactor.stopped == 2


def test_a_twistd_that_forked_cannot_start_again(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "orig_argv", ["python", "twistd", "iop-node"])
    case.restart.asked_by_signal()
    assert case.restart.suspended is None


def test_one_process_at_a_time_holds_a_state_folder_and_its_lock_says_which(tmp_path: Path) -> None:
    first = StateLock(str(tmp_path))
    assert first.take() and not StateLock(str(tmp_path)).take()
    held = read_held(tmp_path)
    assert held is not None and (held.pid, held.instance) == (os.getpid(), first.instance)


AGAIN = """
import os, signal, sys
from iop.tap import signals

class Reactor:
    stop = "stop"
    callFromThread = staticmethod(print)

if "AGAIN" not in os.environ:
    os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(os.open("/dev/null", os.O_RDONLY), True)
    signals.hold()
    os.kill(os.getpid(), signal.SIGUSR2)
    signals.start_again({**os.environ, "AGAIN": str(os.getpid())}, END)
print(os.environ["AGAIN"] == str(os.getpid()), os.listdir("/proc/self/fd"), sys.argv[1:], flush=True)
signals.Signals(Reactor, lambda: None, "restart").install()
print("end")
"""


@pytest.mark.parametrize("end_asked", [True, False])
def test_a_new_start_has_the_pid_the_words_and_what_was_signalled_but_no_descriptor(tmp_path: Path, end_asked: bool) -> None:
    file = tmp_path / "again.py"
    file.write_text(AGAIN.replace("END", str(end_asked)))
    told = subprocess.run([sys.executable, file, "a", "b c"], capture_output=True, text=True, timeout=60)
    assert told.returncode == 0, told.stderr
    lines = told.stdout.splitlines()
    assert lines[0] == "True ['0', '1', '2', '3'] ['a', 'b c']"     # the fourth is the listing itself
    assert sorted(lines[1:]) == sorted(["restart", "end"] + ["stop"] * end_asked)
