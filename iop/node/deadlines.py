"""The time limits of a run: which of them it has passed. Pure."""

from __future__ import annotations

from iop.errors import FirstOutputTimeout, IdleTimeout, IOPError, RunTimeout, StartTimeout
from iop.proto.run_pb2 import Limits


class Times:
    """When things happened in one run, on the clock of the process; None for not yet."""

    __slots__ = ("accepted", "heard", "output", "resumed", "started")

    def __init__(self, now: float) -> None:
        self.accepted = now
        self.started: float | None = None
        self.output: float | None = None      # the first
        self.heard = now                      # the latest event
        self.resumed = 0.0                    # the end of the latest pause


def passed(limits: Limits, times: Times, now: float, paused: bool) -> IOPError | None:
    """The limit that a run has passed. One that is held back is not silent by its own fault.

    Without a limit for the start, the others count from the acceptance until there is one.
    """
    if times.started is None and limits.start_s:
        if now - times.accepted < limits.start_s:
            return None
        return StartTimeout(f"It had not started {limits.start_s:g} s after it was placed.")
    begun = times.accepted if times.started is None else times.started
    if limits.run_s and now - begun >= limits.run_s:
        return RunTimeout(f"The run took longer than its limit of {limits.run_s:g} s.")
    if paused:
        return None
    if times.output is None:
        if limits.first_output_s and now - max(begun, times.resumed) >= limits.first_output_s:
            return FirstOutputTimeout(f"No output came within {limits.first_output_s:g} s of the start.")
    elif limits.silence_s and now - max(times.heard, times.resumed) >= limits.silence_s:
        return IdleTimeout(f"Nothing came for {limits.silence_s:g} s, the run's limit of silence.")
    return None
