"""Facts of this machine that the edge shows: host, system, processors, memory."""

from __future__ import annotations

import os
import platform
import socket


def machine_facts() -> dict[str, str]:
    """What can be had without starting anything."""
    return {
        "hostname": socket.gethostname(), "os": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(), "cpus": str(len(os.sched_getaffinity(0))),
        "memory_bytes": str(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")), "python": platform.python_version(),
    }
