"""The graphics processors of this machine, as nvidia-smi tells of them where there is one."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.utils import getProcessOutput
from twisted.logger import Logger
from twisted.python.failure import Failure

from iop.proto.node_pb2 import GpuLoad

log = Logger()

WAKE_S = 20.0            # a driver that wakes up takes its time
NAMES_BYTES = 2000
MIB = 1024 * 1024

_NAMES = ("--query-gpu=name,memory.total", "--format=csv,noheader")
_LOADS = ("--query-gpu=name,memory.used,memory.total,utilization.gpu", "--format=csv,noheader,nounits")


def find_gpus(reactor: Any, path: str, found: Callable[[str], None]) -> None:
    """`found` hears one name with its memory a line, once; never, where nvidia-smi is not on `path` or does not answer."""
    program = shutil.which("nvidia-smi", path=path)
    if program is None:
        return

    def failed(failure: Failure) -> None:
        log.info("nvidia-smi does not answer: {reason}", reason=failure.getErrorMessage())

    asked = getProcessOutput(program, _NAMES, env={"PATH": path}, reactor=reactor).addTimeout(WAKE_S, reactor)
    asked.addCallback(lambda output: found(output[:NAMES_BYTES].decode("utf-8", "replace").strip())).addErrback(failed)


def load_query(reactor: Any, path: str) -> Callable[[], Deferred[bytes]]:
    """What asks for the lines that gpus_of() reads; they are none where nvidia-smi is not on `path`."""
    program = shutil.which("nvidia-smi", path=path)
    if program is None:
        return lambda: succeed(b"")
    return lambda: getProcessOutput(program, _LOADS, env={"PATH": path}, reactor=reactor)


def gpus_of(output: bytes) -> list[GpuLoad]:
    """From nvidia-smi's lines: name, MiB used, MiB in all, per cent; "[N/A]" where a card does not tell."""
    gpus = []
    for line in output.decode("utf-8", "replace").splitlines():
        words = [word.strip() for word in line.rsplit(",", 3)]
        if len(words) == 4:
            used, total, per_cent = (int(word) if word.isdecimal() else 0 for word in words[1:])
            gpus.append(GpuLoad(name=words[0][:100], memory_used_bytes=used * MIB, memory_total_bytes=total * MIB,
                                busy=per_cent / 100))
    return gpus[:64]
