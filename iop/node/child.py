"""From a fork to the program: own session, its folder, default signals, then exec. Standard library only.

The program dies with its supervisor (PR_SET_PDEATHSIG): what nobody watches does not run on.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
from collections.abc import Sequence

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36      # <linux/prctl.h>
CANNOT_EXEC = 127

_libc = ctypes.CDLL(None, use_errno=True)


def be_subreaper() -> None:
    """From now on, descendants that lose their parents become children of this process."""
    if _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def start(argv: Sequence[bytes], folder: bytes, environment: dict[bytes, bytes], stdio: tuple[int, int, int],
          report: int) -> int:
    """Fork and exec; the child's pid. All signals are blocked meanwhile, so that no handler of ours runs in the child.

    `report` is closed by the exec; what stands there before is ``errno folder|program``.
    """
    parent = os.getpid()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        pid = os.fork()
        if not pid:
            _become(argv, folder, environment, stdio, report, parent)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return pid


def explain(report: bytes, program: str, folder: str) -> str:
    """What a `report` of start() says, as a sentence."""
    number, _, what = report.decode("ascii").partition(" ")
    reason = os.strerror(int(number)) if number.isdigit() else "the exec failed"
    if what == "folder":
        return f"The folder {folder} cannot be entered: {reason}."
    return f"{program} could not be started: {reason}."


def _become(argv: Sequence[bytes], folder: bytes, environment: dict[bytes, bytes], stdio: tuple[int, int, int], report: int,
            parent: int) -> None:
    what = "program"
    try:
        os.setsid()
        _libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != parent:
            os._exit(CANNOT_EXEC)
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_DFL)     # an ignored one would stay so through the exec
        for number, descriptor in enumerate(stdio):
            os.dup2(descriptor, number)               # all others are closed by the exec
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        what = "folder"
        os.chdir(folder)
        what = "program"
        os.execve(argv[0], list(argv), environment)  # noqa: S606  # no shell is the point
    except OSError as error:
        os.write(report, f"{error.errno} {what}".encode())
    except ValueError:                                # a NUL where none can be
        os.write(report, f"{errno.EINVAL} {what}".encode())
    finally:
        os._exit(CANNOT_EXEC)
