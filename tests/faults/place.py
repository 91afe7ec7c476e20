"""The files of a world: configurations, keys, ledgers, logs; and disks that can be filled."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from iop import yamlfile
from iop.files import make_private, write_private
from iop.keys import SCOPES, add_key
from tests.faults.armed import Arm

CHILD = Path(__file__).with_name("child.py")
DISK_MB = 96
PORTS = range(10_240, 32_000)
PYTHON = os.path.realpath(sys.executable)


class Disk:
    """A folder on a small file system of its own where we may make one; it can be full for a while."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        make_private(folder)
        self.small = os.geteuid() == 0 and subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m,mode=0700", "iop-faults", str(folder)],
            capture_output=True).returncode == 0

    @property
    def _ballast(self) -> Path:
        return self.folder / "ballast"

    def fill(self) -> None:
        """Leave not one block."""
        with self._ballast.open("ab", buffering=0) as file, suppress(OSError):
            os.posix_fallocate(file.fileno(), 0, DISK_MB << 20)
        with self._ballast.open("ab", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(65536))
        with self._ballast.open("ab", buffering=0) as file, suppress(OSError):
            while True:
                file.write(b"\0")

    def free(self) -> None:
        self._ballast.unlink(missing_ok=True)

    def remove(self) -> None:
        self.free()
        if self.small:
            subprocess.run(["umount", "-l", str(self.folder)], capture_output=True, check=False)


class NodePlace:
    """One node's folder."""

    def __init__(self, name: str, folder: Path, logs: Path) -> None:
        self.name = name
        self.disk = Disk(folder)
        self.config = folder / "node.yaml"
        self.log = logs / f"{name}.log"
        self.ledger = logs / f"{name}.ledger"
        self.arm_file = logs / f"{name}.arm"
        self.arm = Arm(str(self.arm_file))

    def environment(self) -> dict[str, str]:
        return {"IOP_FAULTS_ARM": str(self.arm_file), "IOP_FAULTS_LEDGER": str(self.ledger)}


class Place:
    """One world's folder: edge/, node-N/ on small disks; logs/, programs/ beside them."""

    def __init__(self, folder: Path, nodes: int, history_url: str = "") -> None:
        self.folder = folder
        make_private(folder)
        self.logs = folder / "logs"
        self.programs = folder / "programs"
        make_private(self.logs)
        make_private(self.programs)
        self.edge_disk = Disk(folder / "edge")
        self.edge_folder = folder / "edge"
        self.config = self.edge_folder / "edge.yaml"
        self.edge_log = self.logs / "edge.log"
        self.arm_file = self.logs / "edge.arm"
        self.arm = Arm(str(self.arm_file))
        self.history_url = history_url
        self.history = self.edge_folder / "history.db"
        self.shared_file = self.edge_folder / "history.db-shm"
        self.nodes = [NodePlace(f"node-{number}", folder / f"node-{number}", self.logs) for number in range(1, nodes + 1)]
        self.link_port, self.http_port = free_ports(2)
        _, self.api_key = add_key(self.edge_folder / "keys.yaml", "api", "chaos", list(SCOPES))
        for node in self.nodes:
            _, token = add_key(self.edge_folder / "keys.yaml", "node", node.name)
            write_private(node.disk.folder / "token", token.encode() + b"\n")

    def environment(self) -> dict[str, str]:
        return {"IOP_FAULTS_ARM": str(self.arm_file)}

    def write_edge(self, generation: int = 0, **edge: Any) -> None:
        """edge.yaml; each generation differs in a label, so that a reload has something to do."""
        value = {
            "edge": {"id": "edge", "state": ".", "lost_after_s": 60.0} | edge,
            "listen": {"http": {"host": "127.0.0.1", "port": self.http_port},
                       "link": {"host": "127.0.0.1", "port": self.link_port}},
            "queue": {"limit": 1000, "deadline_s": 120.0},
            "nodes": [{"id": node.name, "labels": {"generation": str(generation)}, "adapters": adapters(generation)}
                      for node in self.nodes]}
        if self.history_url:
            value["history"] = self.history_url
        write_private(self.config, yamlfile.dump(value).encode())

    def write_node(self, node: NodePlace, edge_port: int) -> None:
        write_private(node.config, yamlfile.dump({
            "node": {"id": node.name, "state": "."},
            "edge": {"host": "127.0.0.1", "port": edge_port, "plain": True, "token_file": "token"},
            "policy": {"mode": "guided", "executables": [PYTHON], "interpreters": [PYTHON]}}).encode())

    def remove(self) -> None:
        for disk in (self.edge_disk, *(node.disk for node in self.nodes)):
            disk.remove()


def adapters(generation: int) -> dict[str, Any]:
    work = {"argv": [PYTHON, "-I", "-S", str(CHILD), "{prompt}"], "int_s": 0.4, "term_s": 0.4}
    return {"cli": {"concurrency": 64, "targets": {"work": work}},
            "mock": {"concurrency": 64, "targets": {
                "talk": {"echo": True, "script": [{"text": "mock {n} ☃\n", "delay_s": 0.02, "repeat": 250}],
                         "limits": {"run_s": 120.0 + generation % 7}}}}}


def free_ports(count: int) -> list[int]:
    """Below those that the kernel gives to connections (32768 and above): an edge that is down for a moment must find its
    own again."""
    found: list[int] = []
    for port in random.SystemRandom().sample(PORTS, len(PORTS)):
        with socket.socket() as probe, suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            found.append(port)
        if len(found) == count:
            break
    return found
