"""What signals do to a supervisor: two of them are told as bytes, nothing else that can be ignored ends it.

Standard library only.
"""

from __future__ import annotations

import os
import signal

TOLD = ("SIGCHLD", "SIGTERM")
IGNORED = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD, signal.SIGTERM}


def listen() -> int:
    """A descriptor on which each signal of TOLD arrives as a byte, its number."""
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)            # a fault of its own ends it all the same
    for name in TOLD:
        signal.signal(getattr(signal, name), lambda number, frame: None)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())       # the node had them blocked until here
    return read
