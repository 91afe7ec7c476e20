"""What operators have set on nodes, labels and drain, kept over restarts of the edge in one small file."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import msgspec
from twisted.internet.defer import Deferred, DeferredLock, succeed

from iop.edge.node import Node
from iop.edge.registry import Registry
from iop.errors import ConfigError, HistoryUnavailable
from iop.files import write_private


class NodeSetting(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One node's."""

    draining: bool = False
    labels: dict[str, str | None] = {}       # None: removed, though edge.yaml or the node has it


def _setting(node: Node) -> NodeSetting:
    return NodeSetting(draining=node.draining, labels=dict(node.label_changes))


class NodeFile:
    """The file. `in_thread(function, *arguments)` runs what blocks (fsync) elsewhere and returns a Deferred.

    Without a file nothing is kept, for tests of other things.
    """

    def __init__(self, file: str = "", in_thread: Callable[..., Deferred[Any]] | None = None) -> None:
        self._file = file
        self._in_thread = in_thread
        self._settings: dict[str, NodeSetting] = {}
        self._lock = DeferredLock()

    def load(self, registry: Registry) -> None:
        """Set on the nodes what was kept. Raises ConfigError when the file is damaged."""
        if not self._file or not os.path.exists(self._file):
            return
        try:
            with open(self._file, "rb") as stream:
                self._settings = msgspec.json.decode(stream.read(), type=dict[str, NodeSetting])
        except (OSError, msgspec.MsgspecError) as error:
            raise ConfigError(f"{self._file} cannot be read ({error}); it keeps the labels and drains that operators set. "
                              "Mend it, or remove it to begin without them.") from None
        for node_id, setting in self._settings.items():
            node = registry.known(node_id)
            node.draining, node.label_changes = setting.draining, dict(setting.labels)

    def save(self, node: Node) -> Deferred[Any]:
        """Keep what is set on `node` now; fires when it is on disk."""
        setting = _setting(node)
        if setting == NodeSetting():
            self._settings.pop(node.node_id, None)
        else:
            self._settings[node.node_id] = setting
        if not self._file or self._in_thread is None:
            return succeed(None)
        # One at a time, each with what is set by then: the last to be written is the last that was set.
        return self._lock.run(self._write).addErrback(self._not_written)

    def _write(self) -> Deferred[Any]:
        if self._in_thread is None:
            return succeed(None)
        return self._in_thread(write_private, self._file, msgspec.json.encode(self._settings) + b"\n")

    def _not_written(self, failure: Any) -> None:
        failure.trap(OSError)
        raise HistoryUnavailable(f"It is done, but will not outlive a restart: {self._file} cannot be written "
                                 f"({failure.value.strerror}).")
