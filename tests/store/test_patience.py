"""How long callers wait, on a clock."""

from __future__ import annotations

import pytest
from twisted.internet.task import Clock
from twisted.internet.testing import MemoryReactorClock

from iop.errors import HistoryUnavailable
from iop.store.lending import LONGEST_PAUSE, TICK_S, Lending
from iop.store.patience import Patience
from iop.store.work import Work, Write


class Overdue:
    count = 0

    def __call__(self) -> None:
        self.count += 1


def watched(patience: Patience, withdraw: bool = False) -> tuple[Write, list]:
    write, failures = Write("update", None), []
    write.deferred.addErrback(lambda failure: failures.append(failure.type))
    patience.watch(write, withdraw=withdraw)
    return write, failures


def test_a_write_in_time_is_left_alone() -> None:
    clock, overdue = Clock(), Overdue()
    patience = Patience(clock, 5.0, overdue)
    write, failures = watched(patience)
    write.done = True
    clock.advance(5)
    assert (failures, overdue.count, clock.getDelayedCalls()) == ([], 0, [])


def test_each_write_has_its_own_five_seconds_and_all_share_one_timer() -> None:
    clock, overdue = Clock(), Overdue()
    patience = Patience(clock, 5.0, overdue)
    first, failed_first = watched(patience)
    clock.advance(3)
    second, failed_second = watched(patience, withdraw=True)
    assert len(clock.getDelayedCalls()) == 1
    clock.advance(2)
    assert (failed_first, failed_second) == ([HistoryUnavailable], [])
    assert not first.withdrawn
    clock.advance(3)
    assert failed_second == [HistoryUnavailable]
    assert second.withdrawn
    assert overdue.count == 2
    assert clock.getDelayedCalls() == []


def test_nothing_is_timed_after_a_stop() -> None:
    clock = Clock()
    patience = Patience(clock, 5.0, Overdue())
    _, failures = watched(patience)
    patience.stop()
    clock.advance(10)
    assert failures == []


class Threads(MemoryReactorClock):
    """callFromThread is carried out when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.from_thread = []

    def callFromThread(self, function, *args) -> None:
        self.from_thread.append((function, args))

    def turn(self) -> None:
        calls, self.from_thread = self.from_thread, []
        for function, args in calls:
            function(*args)


def test_a_withdrawn_write_that_was_committed_all_the_same_is_told() -> None:
    reactor, late = Threads(), []
    work = Work(reactor)
    work.came_too_late = lambda write: late.append(write.values)
    writes = [Write("create", "a"), Write("create", "b")]
    for write in writes:
        work.put_write(write)
        write.deferred, write.withdrawn = None, True
    work.finish(writes[:1], committed=True)
    work.finish(writes[1:])
    reactor.turn()
    assert late == ["a"]
    assert work.backlog == 0


def test_abandoned_work_is_told_to_all_who_wait() -> None:
    reactor = Threads()
    work = Work(reactor)
    waiting = [work.put_write(Write("append", None)), work.put_read(lambda connection: iter(()))]
    work.abandon(HistoryUnavailable())
    reactor.turn()
    for deferred in waiting:
        failures = []
        deferred.addErrback(lambda failure, failures=failures: failures.append(failure.type))
        assert failures == [HistoryUnavailable]
    with pytest.raises(HistoryUnavailable):
        work.put_write(Write("append", None))


class Thread:
    """A thread that makes some way when it is lent to, if it can."""

    def __init__(self, stuck: bool) -> None:
        self.clock = Clock()
        self.pending = True
        self.loans = 0
        self.lending = Lending(self.clock, lambda: self.pending)
        returned = self.lending._returned

        class Returned:
            empty = returned.empty

            def get(_, timeout):
                self.loans += 1
                if not stuck:
                    self.lending.give_back()
                return returned.get(timeout=0.0001)

        self.lending._returned = Returned()
        self.lending._returned.put = returned.put
        self.lending._returned.get_nowait = returned.get_nowait
        self.lending.work_came()

    def ticks(self, count: int) -> None:
        for _ in range(count):
            self.clock.advance(TICK_S)


def test_a_thread_that_starves_is_lent_to_at_each_tick() -> None:
    thread = Thread(stuck=False)
    thread.ticks(50)
    assert thread.loans == 50


def test_a_thread_that_moves_by_itself_is_lent_nothing() -> None:
    thread = Thread(stuck=False)
    for _ in range(50):
        thread.lending.moved()
        thread.ticks(1)
    assert thread.loans == 0


def test_a_database_that_is_slow_costs_few_loans() -> None:
    thread = Thread(stuck=True)
    thread.ticks(LONGEST_PAUSE * 10)
    assert 10 <= thread.loans <= 17


def test_without_work_there_is_no_timer() -> None:
    thread = Thread(stuck=False)
    thread.pending = False
    thread.ticks(1)
    assert thread.clock.getDelayedCalls() == []
    thread.lending.work_came()
    thread.lending.stop()
    assert thread.clock.getDelayedCalls() == []
