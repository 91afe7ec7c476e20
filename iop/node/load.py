"""What this machine has to do now: processors and memory from /proc, and its graphics processors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

from iop.node.gpus import gpus_of, load_query
from iop.proto.node_pb2 import GpuLoad, MachineLoad

log = Logger()

SAMPLE_S = 10.0
GPU_LIMIT_S = 8.0
NOTICED = 0.05           # of all processors, of all memory: less of a change is not told


class Ticks(NamedTuple):
    """Of all processors, since the boot."""

    idle: int
    total: int


class LoadWatch(Service):
    """Calls `told(load)` for the first sample and whenever one differs noticeably from what was told last."""

    def __init__(self, reactor: Any, path: str, told: Callable[[MachineLoad], None], read: Callable[[str], str] | None = None,
                 ask_gpus: Callable[[], Deferred[bytes]] | None = None) -> None:
        self._reactor = reactor
        self._told = told
        self._read = read or _read
        self._ask_gpus = ask_gpus or load_query(reactor, path)
        self._ticks: Ticks | None = None
        self._last: MachineLoad | None = None
        self._loop = LoopingCall(self._sample)
        self._loop.clock = reactor

    def startService(self) -> None:
        super().startService()
        self._ticks = self._read_ticks()
        self._loop.start(SAMPLE_S, now=False)

    def stopService(self) -> None:
        super().stopService()
        if self._loop.running:
            self._loop.stop()

    def _sample(self) -> Deferred[None]:
        """The next one comes once this one has been told."""
        asked = self._ask_gpus().addTimeout(GPU_LIMIT_S, self._reactor)
        return asked.addCallbacks(gpus_of, self._no_gpus).addCallback(self._sampled)

    def _no_gpus(self, failure: Any) -> list[GpuLoad]:
        log.debug("nvidia-smi does not answer: {reason}", reason=failure.getErrorMessage())
        return []

    def _sampled(self, gpus: list[GpuLoad]) -> None:
        before, now = self._ticks, self._read_ticks()
        self._ticks = now
        used, total = memory_of(self._read_file("/proc/meminfo"))
        load = MachineLoad(busy=busy(before, now), memory_used_bytes=used, memory_total_bytes=total, gpus=gpus)
        if self.running and differs(self._last, load):
            self._last = load
            self._told(load)

    def _read_ticks(self) -> Ticks | None:
        return ticks_of(self._read_file("/proc/stat"))

    def _read_file(self, path: str) -> str:
        try:
            return self._read(path)
        except OSError:              # not Linux, or a /proc that shows little
            return ""


def ticks_of(stat: str) -> Ticks | None:
    """From /proc/stat (proc(5)): user nice system idle iowait irq softirq steal; what guests take is in user already."""
    words = stat.partition("\n")[0].split()
    if len(words) < 6 or words[0] != "cpu":
        return None
    numbers = [int(word) for word in words[1:9]]
    return Ticks(numbers[3] + numbers[4], sum(numbers))


def busy(before: Ticks | None, now: Ticks | None) -> float:
    """0 to 1; 0 where it is not known."""
    if before is None or now is None or now.total <= before.total:
        return 0.0
    return round(min(1.0, max(0.0, 1 - (now.idle - before.idle) / (now.total - before.total))), 3)


def memory_of(meminfo: str) -> tuple[int, int]:
    """(used, total) in bytes from /proc/meminfo; what the kernel can give back at once does not count as used."""
    found = {}
    for line in meminfo.splitlines():
        name, _, value = line.partition(":")
        if name in ("MemTotal", "MemAvailable"):
            found[name] = int(value.split()[0]) * 1024
    total = found.get("MemTotal", 0)
    return total - found.get("MemAvailable", total), total


def differs(before: MachineLoad | None, now: MachineLoad) -> bool:
    """Whether the change is worth telling."""
    if before is None or [gpu.name for gpu in before.gpus] != [gpu.name for gpu in now.gpus]:
        return True
    return any(abs(a.busy - b.busy) >= NOTICED or a.memory_total_bytes != b.memory_total_bytes
               or abs(a.memory_used_bytes - b.memory_used_bytes) >= NOTICED * max(1, b.memory_total_bytes)
               for a, b in [(before, now), *zip(before.gpus, now.gpus, strict=True)])


def _read(path: str) -> str:
    with open(path, encoding="ascii", errors="replace") as stream:
        return stream.read()
