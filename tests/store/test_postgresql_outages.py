"""A history in PostgreSQL whose server is full, read-only, restarted, hung or not there."""

from __future__ import annotations

import pytest
from pytest_twisted import ensureDeferred
from twisted.internet import defer, reactor, task, threads

from iop.errors import HistoryUnavailable
from iop.proto import node_pb2
from iop.records import BatchRow, RunQuery, RunRecord
from iop.runs import START, new_run_id
from iop.store import engine
from iop.store.history import History
from tests.store.conftest import a_run
from tests.store.outages import number, opened, until, watch

pytestmark = pytest.mark.usefixtures("hasty")


@pytest.mark.parametrize("state", ["53100", "25006", "57P03"])
@ensureDeferred
async def test_a_server_that_is_full_or_read_only_or_not_ready_recovers(postgresql, postgresql_url, state) -> None:
    history = await opened(postgresql_url)
    changes = watch(history)
    for statement in (
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '{state}'; END $$",
            "CREATE TRIGGER refuse BEFORE INSERT ON batches FOR EACH STATEMENT EXECUTE FUNCTION refuse()",
            "CREATE TRIGGER refuse BEFORE INSERT ON runs FOR EACH STATEMENT EXECUTE FUNCTION refuse()"):
        postgresql.execute(statement, postgresql_url)
    waiting = history.append([BatchRow("r", 1, 1, 1, b"x")])
    await until(lambda: changes == [False])
    with pytest.raises(HistoryUnavailable):
        await history.create_run(a_run())
    assert not waiting.called
    postgresql.execute("DROP FUNCTION refuse() CASCADE", postgresql_url)
    await waiting
    assert changes == [False, True]
    assert await history.committed("r", 1) == 1
    await history.close()


@ensureDeferred
async def test_a_table_that_somebody_locks_makes_batches_wait_and_people_be_told(postgresql_url) -> None:
    history = await opened(postgresql_url)
    changes = watch(history)
    with engine.make_engine(engine.parse_url(postgresql_url)).connect() as connection:
        connection.exec_driver_sql("BEGIN")
        connection.exec_driver_sql("LOCK TABLE batches, runs IN ACCESS EXCLUSIVE MODE")
        waiting = history.append([BatchRow("r", 1, 1, 1, b"x")])
        with pytest.raises(HistoryUnavailable):
            await history.create_run(a_run())
        assert not waiting.called and changes == [False]
        connection.exec_driver_sql("ROLLBACK")
    await waiting
    assert changes == [False, True]
    assert await history.committed("r", 1) == 1
    await history.close()


@pytest.fixture
def server(postgresql):
    """The server, if it is ours to stop; it runs again afterwards."""
    if not postgresql.ours:
        pytest.skip("the server is not ours to stop")
    yield postgresql
    if not postgresql.running:
        postgresql.start()


@pytest.mark.parametrize("how", ["stop", "kill"])
@ensureDeferred
async def test_a_server_restarted_in_mid_stream_loses_and_doubles_nothing(server, postgresql_url, how) -> None:
    history = await opened(postgresql_url)
    changes = watch(history)
    run_id = new_run_id()
    appended, acknowledged = [], []

    def feed() -> None:
        for _ in range(20):
            seq = len(appended) + 1
            appended.append(history.append([BatchRow(run_id, 1, seq, seq, number(seq), {"output_text": str(seq)})])
                            .addCallback(lambda _, seq=seq: acknowledged.append(seq)))
            history.append_event(node_pb2.EdgeNodeEvent(kind=f"e{seq}"))

    await history.create_run(a_run())
    await history.create_run(RunRecord(run_id=run_id, state="running", adapter="a", target="t"))
    feeder = task.LoopingCall(feed)
    feeder.start(0.005)
    await until(lambda: len(acknowledged) > 200)
    await threads.deferToThread(getattr(server, how))
    await until(lambda: not history.available)
    with pytest.raises(HistoryUnavailable):
        await history.create_run(a_run())
    with pytest.raises(HistoryUnavailable):
        await history.run(run_id)
    await threads.deferToThread(server.start)
    await until(lambda: history.available)
    count = len(acknowledged)
    await until(lambda: len(acknowledged) > count + 200)
    feeder.stop()
    await defer.gatherResults(appended)
    assert acknowledged == list(range(1, len(appended) + 1))
    found = await history.batches(run_id, START, 1 << 30)
    assert found == [number(seq) for seq in range(1, len(appended) + 1)]
    assert (await history.run(run_id)).output_text == str(len(appended))
    assert changes == [False, True]
    assert len((await history.runs(RunQuery()))[0]) == 2
    await until(lambda: history.backlog() == 0)
    kinds, after = [], 0
    while page := await history.events(after, 1000):
        kinds += [event.kind for event in page]
        after = page[-1].event_id
    assert kinds == [f"e{seq}" for seq in range(1, len(appended) + 1)]
    await history.close()


@ensureDeferred
async def test_a_server_that_hangs_is_noticed_and_waited_for(server, postgresql_url) -> None:
    history = await opened(postgresql_url)
    changes = watch(history)
    run = a_run()
    await history.create_run(run)
    server.suspend()
    try:
        appended = [history.append([BatchRow(run.run_id, 1, seq, seq, number(seq))]) for seq in range(1, 51)]
        with pytest.raises(HistoryUnavailable):
            await history.update_run(run.run_id, {"state": "running"})
        assert not history.available
        assert not any(deferred.called for deferred in appended)
    finally:
        server.resume()
    await defer.gatherResults(appended)
    assert await history.committed(run.run_id, 1) == 50
    await until(lambda: history.backlog() == 0)
    assert (await history.run(run.run_id)).state == "running"
    assert changes == [False, True]
    await history.close()


@ensureDeferred
async def test_a_server_that_is_not_there_at_the_start_is_waited_for(server, postgresql_url) -> None:
    server.stop()
    history = History(postgresql_url, reactor)
    opening = history.open()
    await task.deferLater(reactor, 0.3)
    assert not opening.called
    await threads.deferToThread(server.start)
    await opening
    await history.append([BatchRow("r", 1, 1, 1, b"x")])
    await history.close()
