"""What the taps share: exit codes and signals; as sysexits.h and systemd have them."""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, NoReturn

from twisted.plugin import getPlugins

from iop import adapters
from iop.interfaces import IAdapterFactory

CONFIG_REFUSED = 78              # EX_CONFIG: starting again cannot help
FAILED = 1


def refuse(sentence: str) -> NoReturn:
    """End before anything was started: one sentence, and the exit code that says that the configuration is at fault."""
    sys.stderr.write(f"{sentence}\n")
    raise SystemExit(CONFIG_REFUSED)


def leave_with(code: int) -> None:
    """Have the process end with `code` once the reactor has stopped; twistd itself knows only success."""
    def leave() -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    atexit.register(leave)


def handle_signals(reactor: Any, reread: Callable[[], object]) -> None:
    """HUP reads the configuration again; TERM and INT stop in order, with exit code 0 (twistd would die of the signal).

    Called once the reactor runs, since it sets its own handlers when it starts.
    """
    def hang_up(number: int, frame: FrameType | None) -> None:
        reactor.callFromThread(reread)

    def end(number: int, frame: FrameType | None) -> None:
        # A second one, while the first is being obeyed, changes nothing.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        reactor.callFromThread(reactor.stop)

    signal.signal(signal.SIGHUP, hang_up)
    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)


def collect_seldom() -> None:
    """Called once all is started: what stands now stays, and a relay that makes and keeps thousands of batches is not
    searched for cycles every 700 of them (a tenth of an edge's time at 1,000 streams)."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def adapter_factories() -> dict[str, IAdapterFactory]:
    """The adapters installed here, by name."""
    return {factory.name: factory for factory in getPlugins(IAdapterFactory, adapters)}
