"""The supervisor of one program: a small process that holds it, journals what it says, and ends all of it.

::

    start --> waiting --GO--> running --exit--> drain --> sweep --> `ended` in the journal --> gone
                 |               |                          ^
                 +-- no node     +-- STOP: INT, TERM, KILL -+

It outlives its node: nobody connected, it goes on until the journal is QUOTA_BYTES ahead of what was kept; then the program
blocks on its pipes. Standard library only, no reactor; run by iop.node.spawn with ``-I -S``. Descriptor 3 is the listening
socket, descriptor 2 a file in its folder. Words: iop.node.words; records: iop.node.journal.
"""

from __future__ import annotations

import json
import math
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

from iop.node import child, journal, processes, signals, words
from iop.node.connection import Connection
from iop.node.ladder import LEFT_BEHIND_S, Course, Ladder
from iop.node.output import Output
from iop.node.stdin import Input

LISTENER = 3
QUOTA_BYTES = 64 * 1024 * 1024   # the journal ahead of what was kept; twice that for what a program says while it ends
REQUEST_S = 10.0                 # without a word before GO, it goes
LOOK_S = 10.0                    # how often it looks whether its folder is still there
RETRY_S = 1.0                    # a disk that takes nothing is tried again

now = time.monotonic


class Supervisor:
    """One run of it. `run` returns when all is over."""

    def __init__(self, folder: str, listener: socket.socket) -> None:
        self.pid = 0                             # Family
        self.exited = False
        self.childless = True
        pid = os.getpid()
        self._folder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._journal = journal.Writer(self._folder, {
            "version": 1, "pid": pid, "ticks": processes.start_ticks(pid), "boot": processes.boot_id(), "child": 0,
            "child_ticks": 0})
        self._selector = selectors.DefaultSelector()
        self._listener = listener
        self._node = Connection(self._selector)
        self._request: dict[str, Any] = {}
        self._input = Input(self._selector)
        self._output = Output(self._selector, self._journal)
        self._ladder: Ladder | None = None
        self._courses: list[Course] = []
        self._ending: dict[str, Any] | None = None
        self._report = b""                       # what went wrong with the exec
        self._due = 0.0                          # when a course wants to go on
        self._retry_at = 0.0
        self._heard_at = now()                   # before GO
        self._stopping = False
        self._looked_at = now()
        self._forgotten = False                  # the folder has been removed: no node can find this again
        self._status: dict[str, int | None] = {"exit_code": None, "signal": None}

    # --- the loop

    def run(self) -> None:
        told = signals.listen()
        self._watch(told, lambda: self._signal_came(os.read(told, 4096)))
        self._watch(self._listener, self._node_came)
        self._journal.begin()
        while self._ending is None or (self._journal.waiting and not self._forgotten):
            for key, _ in self._selector.select(self._patience()):
                key.data()
            self._go_on()
        self._node.tell(self._journal.end)

    def _patience(self) -> float:
        """Seconds until something is due."""
        due = [now() + LOOK_S, self._goes_at()]
        if self._courses:
            due.append(self._due)
        if self._journal.waiting:
            due.append(self._retry_at)
        return max(0.0, min(due) - now())

    def _goes_at(self) -> float:
        """When it goes without having started anything; never, once it has, or is going."""
        if self.pid or self._ending is not None:
            return math.inf
        return 0.0 if self._node.gone else self._heard_at + REQUEST_S

    def _go_on(self) -> None:
        """After all that happened at once."""
        if self._journal.waiting and now() >= self._retry_at:
            self._journal.flush()
            self._retry_at = now() + RETRY_S
        self._run_courses()
        if now() >= self._goes_at():
            self._end(error="The node stopped before the program was started.")
        self._output.read_while(self._journal_may_grow())
        self._node.tell(self._journal.end)
        if now() >= self._looked_at + LOOK_S:
            self._looked_at = now()
            if not os.fstat(self._folder).st_nlink and not self._forgotten:
                self._forgotten = True
                self._stop()

    def _run_courses(self) -> None:
        self._due = now() + LOOK_S
        for course in list(self._courses):
            if course not in self._courses:      # the end has cleared them all
                continue
            try:
                self._due = min(self._due, next(course))
            except StopIteration:
                if course in self._courses:
                    self._courses.remove(course)
                self._due = now()

    def _watch(self, what: Any, callback: Callable[[], None]) -> None:
        self._selector.register(what, selectors.EVENT_READ, callback)

    def _signal_came(self, numbers: bytes) -> None:
        self._reap()
        if signal.SIGTERM in numbers:
            self._stop()

    # --- the node

    def _node_came(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return
        self._node.connected(connection, self._node_said)

    def _node_said(self) -> None:
        for kind, payload in self._node.read():
            self._heard_at = now()
            if kind in HEARD:
                HEARD[kind](self, payload)

    def _requested(self, payload: bytes) -> None:
        try:
            self._request = self._request or words.requested(payload)
        except words.Strange:
            self._node.drop()

    # --- the program

    def _start(self) -> None:
        if self.pid or self._ending is not None or not self._request:
            return
        request = self._request
        pipes: list[int] = []
        try:
            for _ in range(4):
                pipes += os.pipe()
            input_read, input_write, out_read, out_write, err_read, err_write, report_read, report_write = pipes
            given = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC) if request["null"] else os.dup(input_read)
            self.pid = child.start([os.fsencode(word) for word in request["argv"]], os.fsencode(request["cwd"]),
                                   {os.fsencode(name): os.fsencode(value) for name, value in request["env"].items()},
                                   (given, out_write, err_write), report_write)
        except OSError as failure:
            self._end(error=f"{request['argv'][0]} could not be started: {failure.strerror}.")
            return
        for descriptor in (given, input_read, out_write, err_write, report_write):
            os.close(descriptor)
        for descriptor in (input_write, out_read, err_read, report_read):
            os.set_blocking(descriptor, False)
        self.childless = False
        self._input.attach(input_write)
        if request["null"]:
            self._input.close()
        self._watch(report_read, lambda: self._reported(report_read, out_read, err_read))
        self._journal.head |= {"child": self.pid, "child_ticks": processes.start_ticks(self.pid)}
        self._ladder = Ladder(self, request["run_id"])

    def _reported(self, descriptor: int, stdout: int, stderr: int) -> None:
        """The exec went well (nothing to read), or why not."""
        data = os.read(descriptor, 100)
        if data:
            self._report += data
            return
        self._selector.unregister(descriptor)
        os.close(descriptor)
        if self._report:
            self._end(error=child.explain(self._report, self._request["argv"][0], self._request["cwd"]))
            return
        self._output.attach(stdout, stderr)
        head = self._journal.head
        self._journal.append(journal.STARTED, json.dumps({name: head[name] for name in ("child", "child_ticks")}).encode())
        self._courses.append(self._finish())

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self.childless = True
                return
            if not pid:
                return
            if pid == self.pid:
                self.exited = True
                code = os.waitstatus_to_exitcode(status)
                self._status = {"exit_code": code if code >= 0 else None, "signal": -code if code < 0 else None}

    def _stop(self, hurried: bool = False) -> None:
        if self._ladder is None:
            if self._ending is None:
                self._end(error="It was stopped before it was started.")
            return
        if hurried:
            self._ladder.hurried = True
        if not self._stopping and not self.exited:
            self._courses.insert(0, self._ladder.climb(self._request["int_s"], self._request["term_s"]))
        self._stopping = True

    def _journal_may_grow(self) -> bool:
        ending = self._stopping or self.exited
        return not self._journal.waiting and (
            self._journal.end - self._journal.kept < QUOTA_BYTES * (2 if ending else 1))

    # --- the end

    def _finish(self) -> Course:
        """From the exec to the `ended` record."""
        while not self.exited:
            if self._stopping and len(self._courses) == 1:
                self._ladder.left = 1
                self._end(error="KILL did not end it.")
                return
            yield now() + LOOK_S
        self._journal.append(journal.EXITED, json.dumps(self._status).encode())
        yield from self._output.drain(lambda: self._stopping)
        while len(self._courses) > 1:            # the ladder
            yield now() + LOOK_S
        yield from self._ladder.sweep(0.0 if self._stopping else LEFT_BEHIND_S)
        yield from self._output.drain(lambda: False)
        self._end()

    def _end(self, error: str = "") -> None:
        ladder = self._ladder
        self._ending = {"error": error, "steps": ladder.steps if ladder is not None else [],
                        "processes_left": ladder.left if ladder is not None else 0}
        self._ending |= self._status if not error else {"exit_code": None, "signal": None}
        self._courses.clear()
        self._journal.append(journal.ENDED, json.dumps(self._ending).encode())
        self._retry_at = now() + RETRY_S


HEARD: dict[int, Callable[[Supervisor, bytes], None]] = {
    words.REQUEST: Supervisor._requested,
    words.INPUT: lambda supervisor, data: supervisor._input.write(data),
    words.CLOSE_INPUT: lambda supervisor, _: supervisor._input.close(),
    words.GO: lambda supervisor, _: supervisor._start(),
    words.STOP: lambda supervisor, _: supervisor._stop(),
    words.KILL: lambda supervisor, _: supervisor._stop(hurried=True),
    words.KEPT: lambda supervisor, place: supervisor._journal.forget(*words.PLACE.unpack(place)),
}


def main() -> None:
    folder = sys.argv[1]
    os.closerange(LISTENER + 1, os.sysconf("SC_OPEN_MAX"))
    os.set_inheritable(LISTENER, False)
    listener = socket.socket(fileno=LISTENER)
    listener.setblocking(False)
    child.be_subreaper()
    supervisor = Supervisor(folder, listener)            # held: its connection ends with this process, not before
    supervisor.run()
    os._exit(0)
