"""What the node tells of its machine's load."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock

from iop.node.gpus import gpus_of
from iop.node.load import SAMPLE_S, LoadWatch, Ticks, busy, memory_of, ticks_of
from iop.proto.node_pb2 import MachineLoad

# Debian 12, and nvidia-smi of driver 550 as NVIDIA documents its csv.
STAT = "cpu  100 0 100 800 0 0 0 0 0 0\ncpu0 1 1 1 1\n"
MEMORY = "MemTotal:       1000 kB\nMemFree:         100 kB\nMemAvailable:    400 kB\n"
SMI = b"NVIDIA GeForce RTX 4090, 1024, 24564, 37\nTesla T4, [N/A], 15360, [N/A]\n"


class Machine:
    def __init__(self) -> None:
        self.files = {"/proc/stat": STAT, "/proc/meminfo": MEMORY}
        self.gpus: Callable[[], Deferred] = lambda: succeed(b"")
        self.clock = Clock()
        self.told: list[MachineLoad] = []
        self.watch = LoadWatch(self.clock, "", self.told.append, self.files.__getitem__, lambda: self.gpus())
        self.watch.startService()

    def pass_(self, user: int, idle: int) -> None:
        ticks = ticks_of(self.files["/proc/stat"])
        self.files["/proc/stat"] = f"cpu  {ticks.total - ticks.idle + user} 0 0 {ticks.idle + idle} 0 0 0 0 0 0\n"
        self.clock.advance(SAMPLE_S)


def test_it_is_told_first_and_then_only_when_it_changes_noticeably():
    machine = Machine()
    machine.pass_(user=50, idle=50)
    assert [load.busy for load in machine.told] == [0.5]
    assert (machine.told[0].memory_used_bytes, machine.told[0].memory_total_bytes) == (600 * 1024, 1000 * 1024)
    machine.pass_(user=52, idle=48)
    machine.pass_(user=48, idle=52)
    assert len(machine.told) == 1
    machine.pass_(user=90, idle=10)
    assert [load.busy for load in machine.told] == [0.5, 0.9]
    machine.files["/proc/meminfo"] = MEMORY.replace("400", "300")
    machine.pass_(user=90, idle=10)
    assert machine.told[-1].memory_used_bytes == 700 * 1024
    machine.watch.stopService()
    machine.pass_(user=0, idle=100)
    assert len(machine.told) == 3


def test_graphics_processors_are_told_as_far_as_they_tell():
    machine = Machine()
    machine.gpus = lambda: succeed(SMI)
    machine.pass_(1, 1)
    first, second = machine.told[0].gpus
    assert (first.name, first.busy, first.memory_used_bytes) == ("NVIDIA GeForce RTX 4090", 0.37, 1024 * 1024 * 1024)
    assert (second.name, second.busy, second.memory_total_bytes) == ("Tesla T4", 0.0, 15360 * 1024 * 1024)


@pytest.mark.parametrize("answer", [lambda: fail(OSError("gone")), Deferred])
def test_a_driver_that_fails_or_hangs_takes_nothing_from_the_rest(answer):
    machine = Machine()
    machine.gpus = answer
    machine.pass_(1, 1)
    machine.clock.advance(9)
    assert [load.busy for load in machine.told] == [0.5] and not machine.told[0].gpus


def test_a_machine_without_these_files_tells_nothing_wrong():
    assert ticks_of("") is None and busy(None, Ticks(1, 2)) == 0.0 and memory_of("") == (0, 0) and gpus_of(b"no\n") == []
