"""What it takes to start a program, and how it ended: plain values between an adapter and whoever starts programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SpawnRequest:
    """A program to start. `argv[0]` is an absolute path; `env` is the whole environment; no shell is involved."""

    run_id: str
    attempt: int
    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str]
    stdin: bytes | None = None       # written, then closed; None with keep_input False is /dev/null
    keep_input: bool = False         # leave standard input open for more
    int_s: float = 3.0               # after INT, wait this long
    term_s: float = 5.0              # after TERM, wait this long; then KILL


@dataclass(frozen=True, slots=True)
class ProgramEnding:
    """How a program ended. Exactly one of exit_code, signal and error is set; with lost, what is known of them."""

    exit_code: int | None = None
    signal: int | None = None
    error: str = ""                  # it never started: a sentence
    interrupted: bool = False        # with error: its node ended before it had been begun
    lost: str = ""                   # its supervisor was killed, so how it ended is not known: a sentence
    found: int = 0                   # with lost: how many of its processes still lived and were ended
    steps: tuple[str, ...] = ()      # signals that a stop sent, in order
    processes_left: int = 0          # -1: cannot be known
