"""What the taps share: the command line, the reactor, and why a process does not start (exit codes of sysexits.h)."""

from __future__ import annotations

import atexit
import errno
import gc
import os
import sys
import time
from collections.abc import Iterable
from typing import Any

from twisted.internet.error import CannotListenError
from twisted.logger import Logger
from twisted.plugin import getPlugins
from twisted.python import usage
from twisted.python.failure import Failure

from iop import adapters
from iop.addresses import host_port
from iop.errors import ConfigError, IOPError
from iop.exits import CONFIG_REFUSED, FAILED
from iop.interfaces import IAdapterFactory
from iop.proto.node_pb2 import AdapterConfig
from iop.yamlfile import Document, Path

log = Logger()


class Options(usage.Options):
    """``-c FILE``: a configuration that is wrong ends the process before anything is opened."""

    optParameters = [["config", "c", None, "The YAML file that describes it."]]

    def postOptions(self) -> None:
        """All that is wrong is told as one sentence, with the exit code that says that starting again cannot help."""
        if not self["config"]:
            raise usage.UsageError("Name the configuration: -c FILE")
        try:
            self.read(os.path.abspath(self["config"]))
        except IOPError as error:
            sys.stderr.write(f"{error.sentence}\n")
            raise SystemExit(CONFIG_REFUSED) from None

    def read(self, file: str) -> None:
        """Read and check all that can be known before the start. Raises an IOPError."""
        raise NotImplementedError


def steady_reactor() -> Any:
    """The reactor, its timers on a clock that never jumps: on the wall clock, a jump would fire or hold them all."""
    from twisted.internet import reactor

    reactor.seconds = time.monotonic  # type: ignore[attr-defined]
    return reactor


def not_started(reactor: Any, what: str, failure: Failure) -> None:
    """End a process that cannot start: one sentence when it is its machine or configuration, a traceback when it is us."""
    if failure.check(IOPError, OSError, CannotListenError):
        log.critical("{what} does not start: {why}", what=what, why=why_not(failure.value))
    else:
        log.failure("{what} does not start", failure, what=what)
    _leave_with(CONFIG_REFUSED if failure.check(ConfigError) else FAILED)
    reactor.stop()


def why_not(error: Any) -> str:
    """Why a process does not start, and what to do."""
    if isinstance(error, CannotListenError):
        where = host_port(error.interface, error.port)
        if getattr(error.socketError, "errno", None) == errno.EADDRINUSE:
            return f"{where} is taken: another process listens there. End that one, or choose another port under `listen`."
        return f"Nobody can listen at {where} here: {getattr(error.socketError, 'strerror', '') or error.socketError}."
    if isinstance(error, IOPError):
        return error.sentence
    return str(error)


def _leave_with(code: int) -> None:
    """Have the process end with `code` once the reactor has stopped; twistd itself knows only success."""
    def leave() -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    atexit.register(leave)


def collect_seldom() -> None:
    """Called once all is started: what stands now stays, and a relay that makes and keeps thousands of batches is not
    searched for cycles every 700 of them (a tenth of an edge's time at 1,000 streams)."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def adapter_factories() -> dict[str, IAdapterFactory]:
    """The adapters installed here, by name."""
    return {factory.name: factory for factory in getPlugins(IAdapterFactory, adapters)}


def check_targets(document: Document, path: Path, adapters: Iterable[AdapterConfig]) -> list[str]:
    """Have each adapter that is installed here look at its targets, which stand at `path`; the names of those that are not.

    Raises ConfigError.
    """
    factories, unknown = adapter_factories(), []
    for adapter in adapters:
        factory = factories.get(adapter.adapter)
        if factory is None:
            unknown.append(adapter.adapter)
            continue
        for target in adapter.targets:
            with document.blamed(*path, adapter.adapter, "targets", target.name):
                factory.settings(target)
    return unknown
