"""A program's standard output and error, as its supervisor reads them into the journal. Standard library only."""

from __future__ import annotations

import os
import selectors
import time
from collections.abc import Callable
from functools import partial

from iop.node import journal
from iop.node.ladder import Course

READ_BYTES = 64 * 1024
QUIET_S = 1.0               # pipes of an ended program that say nothing for this long are closed
LIMIT_S = 5.0               # and all are, after this long
LOOK_AGAIN_S = 1.0          # while they are not read

now = time.monotonic


class Output:
    """Both pipes; what one of them says at once becomes one record."""

    def __init__(self, selector: selectors.BaseSelector, writer: journal.Writer) -> None:
        self._selector = selector
        self._journal = writer
        self._kinds: dict[int, int] = {}         # of the records, by descriptor
        self._reading = False
        self._read_at = 0.0

    def attach(self, stdout: int, stderr: int) -> None:
        self._kinds = {stdout: journal.STDOUT, stderr: journal.STDERR}
        self._reading = False

    def read_while(self, wanted: bool) -> None:
        """Read them from now on, or let the program block on them."""
        if wanted == self._reading:
            return
        self._reading = wanted
        for descriptor in self._kinds:
            if wanted:
                self._selector.register(descriptor, selectors.EVENT_READ, partial(self._read, descriptor))
            else:
                self._selector.unregister(descriptor)

    def drain(self, enough: Callable[[], bool]) -> Course:
        """Until the pipes end, or are quiet, or have had long enough; time does not count while they are not read."""
        self._read_at = now()
        deadline = now() + LIMIT_S
        while self._kinds and now() < deadline and not enough():
            if not self._reading:
                self._read_at, deadline = now(), now() + LIMIT_S
                yield now() + LOOK_AGAIN_S
            elif now() >= self._read_at + QUIET_S:
                break
            else:
                yield min(self._read_at + QUIET_S, deadline)

    def _read(self, descriptor: int) -> None:
        if self._journal.waiting:
            return
        try:
            data = os.read(descriptor, READ_BYTES)
        except BlockingIOError:
            return
        if not data:
            self._selector.unregister(descriptor)
            os.close(descriptor)
            del self._kinds[descriptor]
            return
        self._read_at = now()
        self._journal.append(self._kinds[descriptor], data)
