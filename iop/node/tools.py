"""What the node gives its adapters to work with."""

from __future__ import annotations

import os
import pwd
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from typing import Any

from twisted.internet import threads
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from zope.interface import implementer

from iop.adapters.wire.client import HttpClient
from iop.errors import AdapterError, PolicyDenied
from iop.interfaces import IAdapterTools
from iop.node.policy import Policy
from iop.node.server_program import Means
from iop.node.servers import Servers, free_port
from iop.requirements import Program, Upstream

log = Logger()

PROBE_S = 3.0             # of a server's health


@implementer(IAdapterTools)
class Tools:
    """`folder` holds the runs' own folders, and `servers_folder` what is kept of model servers, which may take `memory_bytes`
    together (0: no limit). `inherited`: the node's own environment, of which programs get little."""

    def __init__(self, reactor: Any, spawner: Any, policy: Policy, folder: str, inherited: Mapping[str, str], *,
                 servers_folder: str = "", memory_bytes: int = 0) -> None:
        self.reactor = reactor
        self.clock = reactor
        self.spawner = spawner
        self.policy = policy
        self.own: list[Program | Upstream] = []  # what the node's own targets need
        self._folder = folder
        self._made = set(os.listdir(folder)) if os.path.isdir(folder) else set()     # runs that may have folders
        self._inherited = inherited
        client = HttpClient(reactor, reactor, connect_s=PROBE_S)
        self.servers = Servers(Means(reactor, spawner, self.environment, self.require,
                                     lambda url: client.fetch(url, {}, within_s=PROBE_S), free_port),
                               servers_folder or os.path.join(folder, "servers"), memory_bytes)

    def workdir(self, run_id: str) -> str:
        path = os.path.join(self._folder, run_id)
        self._made.add(run_id)
        try:
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            os.makedirs(path, mode=0o700, exist_ok=True)
        except OSError as error:
            raise AdapterError(f"The run's folder {path} cannot be made: {error.strerror}.") from None
        return path

    def remove_workdir(self, run_id: str) -> Deferred[None] | None:
        """Remove what a run left on the disk, in a thread, once its ending is safe; None when it has no folder of its own."""
        if self.spawner is not None:
            self.spawner.forget(run_id)
        if run_id not in self._made:
            return None
        self._made.discard(run_id)
        path = os.path.join(self._folder, run_id)
        removed = threads.deferToThreadPool(self.reactor, self.reactor.getThreadPool(), shutil.rmtree, path)
        return removed.addErrback(lambda failure: log.warn("the folder {path} cannot be removed: {reason}", path=path,
                                                           reason=failure.getErrorMessage()))

    def environment(self) -> dict[str, str]:
        base = {"PATH": os.defpath, "HOME": _home(), "LANG": "C.UTF-8", "TERM": "dumb", "TMPDIR": tempfile.gettempdir()}
        names = [*(name for name in base if name != "TERM"), *self.policy.config.env]
        return base | {name: self._inherited[name] for name in names if name in self._inherited}

    def require(self, requirements: Iterable[Program | Upstream]) -> None:
        faults = [fault for requirement in requirements
                  for fault in self.policy.judge([requirement], own=requirement in self.own)]
        if faults:
            raise PolicyDenied(faults[0].reason)


def _home() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        return "/"
