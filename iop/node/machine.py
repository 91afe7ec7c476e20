"""Facts of this machine that the edge shows: host, system, processors, memory, graphics processors."""

from __future__ import annotations

import os
import platform
import shutil
import socket
from collections.abc import Callable
from typing import Any

from twisted.internet.utils import getProcessOutput
from twisted.logger import Logger
from twisted.python.failure import Failure

log = Logger()

GPU_QUERY = ("--query-gpu=name,memory.total", "--format=csv,noheader")
GPU_LIMIT_S = 20.0       # a driver that wakes up takes its time
GPU_BYTES = 2000


def machine_facts() -> dict[str, str]:
    """What can be had without starting anything."""
    return {
        "hostname": socket.gethostname(), "os": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(), "cpus": str(len(os.sched_getaffinity(0))),
        "memory_bytes": str(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")), "python": platform.python_version(),
    }


def find_gpus(reactor: Any, path: str, found: Callable[[str], None]) -> None:
    """Ask nvidia-smi, when there is one on `path`; `found` hears one name a line, or is never called."""
    program = shutil.which("nvidia-smi", path=path)
    if program is None:
        return

    def failed(failure: Failure) -> None:
        log.info("nvidia-smi does not answer: {reason}", reason=failure.getErrorMessage())

    asked = getProcessOutput(program, GPU_QUERY, env={"PATH": path}, reactor=reactor).addTimeout(GPU_LIMIT_S, reactor)
    asked.addCallback(lambda output: found(output[:GPU_BYTES].decode("utf-8", "replace").strip())).addErrback(failed)
