"""The database is locked, full, gone or restarted: nothing is acknowledged, nothing is lost, and it recovers by itself."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
import threading

import pytest
from pytest_twisted import ensureDeferred
from sqlalchemy.exc import OperationalError
from twisted.internet import defer, reactor, task, threads

from iop.errors import ConfigError, HistoryUnavailable
from iop.proto import node_pb2, run_pb2
from iop.proto.link_pb2 import Frame
from iop.records import BatchRow, RunQuery, SessionRecord
from iop.runs import START, new_run_id
from iop.store import engine, worker
from iop.store.history import History
from tests.store.conftest import a_run
from tests.store.outages import number, opened, until, watch

pytestmark = pytest.mark.usefixtures("hasty")


def noise(seq: int) -> bytes:
    """What takes its room on disk, however it is packed; its own for each number."""
    return random.Random(seq).randbytes(4000)


class Lock:
    """Another process's lock on the whole file."""

    def __init__(self, path) -> None:
        self.connection = sqlite3.connect(path, isolation_level=None)
        self.connection.execute("BEGIN IMMEDIATE")

    def release(self) -> None:
        self.connection.execute("ROLLBACK")
        self.connection.close()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "history.db"


@ensureDeferred
async def test_a_locked_file_makes_batches_wait_and_people_be_told(path) -> None:
    history = await opened(f"sqlite:///{path}")
    changes = watch(history)
    known = a_run()
    await history.create_run(known)
    lock = Lock(path)
    run_id = known.run_id
    appended = [history.append([BatchRow(run_id, 1, seq, seq, number(seq))]) for seq in range(1, 101)]
    event = history.append_event(node_pb2.EdgeNodeEvent(kind="node_up"))
    refused, line = a_run(), run_pb2.Source()
    for impatient in (history.create_run(refused), history.audit(line, "withdrawn", ""),
                      history.update_run(run_id, {"state": "running"}),
                      history.put_session(SessionRecord(session_id="s", node_id="", adapter="", target="", created_us=0,
                                                        used_us=0))):
        with pytest.raises(HistoryUnavailable):
            await impatient
    assert not any(deferred.called for deferred in appended)
    assert changes == [False]
    assert not history.available
    assert history.backlog() >= 100
    appended.append(history.append([BatchRow(run_id, 1, 101, 101, number(101))]))
    lock.release()
    await defer.gatherResults(appended)
    assert await event == 1
    assert await history.batches(run_id, START, 1 << 20) == [number(seq) for seq in range(1, 102)]
    # What was withdrawn was not done, or, where its commit was under way already, is told as ended; what only lost its
    # caller was done.
    runs = {run.run_id: run for run in (await history.runs(RunQuery()))[0]}
    assert runs.pop(run_id).state == "running"
    assert [(run.run_id, run.outcome_code) for run in runs.values()] in ([], [(refused.run_id, "history_unavailable")])
    for run in runs.values():
        [ending] = await history.batches(run.run_id, START, 1 << 20)
        assert run.attempt == 1 and Frame.FromString(ending).event_batch.events[0].failed.code == "history_unavailable"
    assert (await history.run(run_id)).state == "running"
    assert [session.session_id for session in await history.sessions()] == ["s"]
    assert changes == [False, True]
    await history.close()
    rows = sqlite3.connect(path).execute("SELECT count(*) FROM audit").fetchone()
    assert rows in ((0,), (len(runs),))


@ensureDeferred
@pytest.mark.parametrize("harm", ["moved away", "replaced"])
async def test_nothing_is_acknowledged_into_a_file_that_is_gone_and_all_is_there_once_it_is_back(path, harm: str) -> None:
    history = await opened(f"sqlite:///{path}")
    changes, run = watch(history), a_run()
    await history.create_run(run)
    aside = path.rename(path.with_name("aside"))
    if harm == "replaced":
        path.write_bytes(aside.read_bytes())
    appended = history.append([BatchRow(run.run_id, 1, 1, 1, number(1))])
    await until(lambda: changes == [False])
    with pytest.raises(HistoryUnavailable):
        await history.create_run(a_run())
    assert not appended.called and path.exists() is (harm == "replaced")
    aside.rename(path)
    await appended
    assert changes == [False, True]
    assert await history.batches(run.run_id, START, 1 << 20) == [number(1)]
    await history.close()


@ensureDeferred
async def test_reads_go_on_while_the_file_is_locked(path) -> None:
    history = await opened(f"sqlite:///{path}")
    run = a_run()
    await history.create_run(run)
    lock = Lock(path)
    waiting = history.append([BatchRow(run.run_id, 1, 1, 1, b"x")])
    assert (await history.run(run.run_id)).run_id == run.run_id
    await until(lambda: not history.available)
    assert (await history.run(run.run_id)).run_id == run.run_id
    lock.release()
    await waiting
    await history.close()


@ensureDeferred
async def test_a_run_stored_after_its_caller_was_told_no_is_ended(path, monkeypatch) -> None:
    """The caller's patience ends while the commit is already under way."""
    history = await opened(f"sqlite:///{path}")
    gate = threading.Event()
    commit = worker.Worker._transaction

    def slow(self, group) -> None:
        commit(self, group)
        gate.wait(20)

    monkeypatch.setattr(worker.Worker, "_transaction", slow)
    run = a_run()
    with pytest.raises(HistoryUnavailable):
        await history.create_run(run)
    gate.set()
    await until(lambda: history.backlog() == 0)
    stored = await history.run(run.run_id)
    assert (stored.state, stored.outcome_code) == ("failed", "history_unavailable")
    assert await history.open_runs() == []
    await history.close()


@ensureDeferred
async def test_closing_while_the_file_is_locked_acknowledges_nothing(path) -> None:
    history = await opened(f"sqlite:///{path}")
    lock = Lock(path)
    waiting = history.append([BatchRow(new_run_id(), 1, 1, 1, b"x")])
    await history.close()
    with pytest.raises(HistoryUnavailable):
        await waiting
    lock.release()
    assert sqlite3.connect(path).execute("SELECT count(*) FROM batches").fetchone() == (0,)


@ensureDeferred
async def test_a_full_database_recovers_once_there_is_room(path, monkeypatch) -> None:
    history = await opened(f"sqlite:///{path}")
    await history.close()
    with monkeypatch.context() as room:
        room.setattr(engine, "_SQLITE_SETTINGS", (*engine._SQLITE_SETTINGS, "PRAGMA max_page_count=60"))
        history = await opened(f"sqlite:///{path}")
        changes = watch(history)
        run_id = new_run_id()
        appended = [history.append([BatchRow(run_id, 1, seq, seq, noise(seq))]) for seq in range(1, 201)]
        await until(lambda: changes == [False])
        assert await history.committed(run_id, 1) == sum(deferred.called for deferred in appended) < 200
        with pytest.raises(HistoryUnavailable):
            await history.create_run(a_run())
    await defer.gatherResults(appended)
    assert await history.batches(run_id, START, 1 << 30) == [noise(seq) for seq in range(1, 201)]
    assert changes == [False, True]
    await history.close()


# Its files may not grow beyond 300 kB until the parent says so: what a full disk does to write().
_LIMITED = """
import random, resource, signal, sys
from twisted.internet import defer, reactor, task
from iop.records import BatchRow
from iop.store.history import History

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

async def main():
    history = History(sys.argv[1], reactor)
    await history.open()
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, unlimited[1]))
    appended = [history.append([BatchRow("r", 1, seq, seq, random.Random(seq).randbytes(4000))]) for seq in range(1, 201)]
    while history.available:
        await task.deferLater(reactor, 0.01)
    print("unavailable", sum(deferred.called for deferred in appended) < 200, flush=True)
    resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    await defer.gatherResults(appended)
    print("available", history.available, await history.committed("r", 1), flush=True)
    await history.close()

task.react(lambda _: defer.Deferred.fromCoroutine(main()))
"""


def test_a_disk_that_takes_no_more_bytes_recovers(path) -> None:
    done = subprocess.run([sys.executable, "-c", _LIMITED, f"sqlite:///{path}"], capture_output=True, text=True,
                          timeout=60, check=False)
    assert done.stdout.splitlines() == ["unavailable True", "available True 200"], done.stderr
    stored = sqlite3.connect(path).execute("SELECT first_seq, packed FROM batches ORDER BY 1").fetchall()
    assert stored == [(seq, noise(seq)) for seq in range(1, 201)]


# Appends for ever, and prints the number of each batch once it is committed.
_ENDLESS = """
import sys
from twisted.internet import defer, reactor, task
from iop.records import BatchRow
from iop.store.history import History

async def main():
    history = History(sys.argv[1], reactor)
    await history.open()
    seq = 0
    def feed():
        nonlocal seq
        for _ in range(20):
            seq += 1
            committed = history.append([BatchRow("r", 1, seq, seq, b"%08d" % seq)])
            committed.addCallback(lambda _, seq=seq: print(seq, flush=True))
    await task.LoopingCall(feed).start(0.002)

task.react(lambda _: defer.Deferred.fromCoroutine(main()))
"""


def acknowledged_before_a_kill(url: str) -> list[int]:
    process = subprocess.Popen([sys.executable, "-c", _ENDLESS, url], stdout=subprocess.PIPE, text=True)
    try:
        seen = [int(process.stdout.readline()) for _ in range(300)]
    finally:
        process.kill()
    seen += [int(line) for line in process.communicate()[0].splitlines()]
    return seen


@ensureDeferred
async def test_what_was_acknowledged_is_there_after_a_kill(url) -> None:
    for _ in range(3):
        seen = await threads.deferToThread(acknowledged_before_a_kill, url)
        assert seen == list(range(1, len(seen) + 1))
        history = await opened(url)
        found = await history.batches("r", START, 1 << 30)
        assert found == [number(seq) for seq in range(1, len(found) + 1)]
        assert len(found) >= len(seen)
        await history.close()


@ensureDeferred
async def test_a_database_that_refuses_everything_recovers(path) -> None:
    history = await opened(f"sqlite:///{path}")
    changes = watch(history)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("CREATE TRIGGER broken BEFORE INSERT ON batches BEGIN SELECT no_such_function(); END")
    waiting = history.append([BatchRow("r", 1, 1, 1, b"x")])
    await until(lambda: changes == [False])
    other.execute("DROP TRIGGER broken")
    await waiting
    assert changes == [False, True]
    other.close()
    await history.close()


@ensureDeferred
async def test_a_database_that_becomes_read_only_recovers(path, monkeypatch) -> None:
    history = await opened(f"sqlite:///{path}")
    changes = watch(history)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("CREATE TRIGGER broken BEFORE INSERT ON batches BEGIN SELECT no_such_function(); END")
    with monkeypatch.context() as read_only:     # as the next connection finds it
        read_only.setattr(engine, "_SQLITE_SETTINGS", (*engine._SQLITE_SETTINGS, "PRAGMA query_only = ON"))
        waiting = history.append([BatchRow("r", 1, 1, 1, b"x")])
        await until(lambda: changes == [False])
        other.execute("DROP TRIGGER broken")
        other.close()
        with pytest.raises(HistoryUnavailable):
            await history.create_run(a_run())
        assert not waiting.called
    await waiting
    assert changes == [False, True]
    assert await history.committed("r", 1) == 1
    await history.close()


@ensureDeferred
async def test_an_answer_to_a_commit_that_was_lost_does_not_double_it(url, monkeypatch) -> None:
    """The database has committed, but says so to nobody."""
    history = await opened(url)
    commit = worker.Worker._transaction
    lost = []

    def cut(self, group) -> None:
        commit(self, group)
        if len(lost) < 2:
            lost.append(len(group))
            raise OperationalError("COMMIT", None, Exception("cut"))

    monkeypatch.setattr(worker.Worker, "_transaction", cut)
    run = a_run(principal="ann", idempotency_key="k")
    waiting = [history.create_run(run), history.append([BatchRow(run.run_id, 1, 1, 1, b"x", {"state": "running"})]),
               history.append_event(node_pb2.EdgeNodeEvent(kind="one")), history.audit(run_pb2.Source(), "a", "d"),
               history.append_event(node_pb2.EdgeNodeEvent(kind="two"))]
    while len(lost) < 1:
        await task.deferLater(reactor, 0.01)
    waiting.append(history.update_run(run.run_id, {"state": "completed"}))
    answers = await defer.gatherResults(waiting)
    assert answers[0] == run
    assert [answers[2], answers[4]] == [1, 2]
    assert await history.batches(run.run_id, START, 100) == [b"x"]
    assert [event.kind for event in await history.events(0, 10)] == ["one", "two"]
    assert (await history.run(run.run_id)).state == "completed"
    await history.close()


@ensureDeferred
async def test_a_database_serves_one_process_at_a_time(url, monkeypatch) -> None:
    monkeypatch.setattr("iop.store.store.OPEN_PATIENCE_S", 0.3)
    first, second = await opened(url), History(url, reactor)
    with pytest.raises((ConfigError, HistoryUnavailable), match="another process"):
        await second.open()
    await first.close()
    third = await opened(url)
    await third.append([BatchRow("r", 1, 1, 1, b"x")])
    await third.close()


@ensureDeferred
async def test_a_server_that_never_comes_is_told(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("iop.store.store.OPEN_PATIENCE_S", 0.2)
    history = History(f"postgresql://u@/d?host={tmp_path}", reactor)
    with pytest.raises(HistoryUnavailable):
        await history.open()
    await history.close()
