"""An IHistory on SQLite and on PostgreSQL alike."""

from __future__ import annotations

import msgspec
import pytest
from pytest_twisted import ensureDeferred
from twisted.internet import defer, reactor
from zope.interface.verify import verifyObject

from iop.errors import HistoryUnavailable, InvalidRequest, NoSuchRun
from iop.interfaces import IHistory
from iop.proto import node_pb2, run_pb2
from iop.records import BatchRow, RunQuery, RunRecord, SessionRecord
from iop.runs import START, new_run_id
from iop.store import tables
from iop.store.history import History
from tests.store.conftest import a_run, rows_of

DAY_US = 24 * 3600 * 1_000_000
NASTY = "a\x00b\ud800c\u2028\x1bé"
CLEANED = "a\ufffdb\ufffdc\u2028\x1bé"


def test_a_run_has_a_column_for_each_field_of_its_record() -> None:
    assert tables.names(tables.runs) == RunRecord.__struct_fields__
    assert tables.names(tables.sessions) == SessionRecord.__struct_fields__


@ensureDeferred
async def test_it_provides_what_the_edge_needs(history) -> None:
    assert verifyObject(IHistory, history)
    assert history.available
    assert history.backlog() == 0


@ensureDeferred
async def test_a_run_comes_back_as_it_was_stored(history) -> None:
    record = a_run(request=b"\x00\xff" * 10, outcome=b"", idempotency_key="k", principal="ann", priority=-3,
                   output_text="tail", prompt_tokens=7)
    assert await history.create_run(record) == record
    assert await history.run(record.run_id) == record


@ensureDeferred
async def test_a_run_that_is_not_there_is_told(history) -> None:
    with pytest.raises(NoSuchRun):
        await history.run("0" * 32)


@ensureDeferred
async def test_changes_are_kept_in_the_order_they_were_asked(history) -> None:
    record = a_run()
    waiting = [history.create_run(record)]
    for number in range(50):
        waiting.append(history.update_run(record.run_id, {"attempt": number, "state": "placed"}))
    waiting.append(history.update_run(record.run_id, {"state": "running", "started_us": 5}))
    await defer.gatherResults(waiting)
    stored = await history.run(record.run_id)
    assert (stored.attempt, stored.state, stored.started_us) == (49, "running", 5)


@ensureDeferred
async def test_changes_of_many_runs_are_one_commit(history) -> None:
    records = [a_run() for _ in range(77)]
    await defer.gatherResults([history.create_run(record) for record in records])
    await defer.gatherResults([history.update_run(record.run_id, {"node_id": f"n{index}", "request": b"\x01" * index})
                               for index, record in enumerate(records)])
    stored = [await history.run(record.run_id) for record in records]
    assert [run.node_id for run in stored] == [f"n{index}" for index in range(77)]
    assert [len(run.request) for run in stored] == list(range(77))


@ensureDeferred
async def test_a_change_of_something_that_is_no_column_is_a_fault_of_the_code(history) -> None:
    for changes in ({"colour": "red"}, {"run_id": "1" * 32}, {"attempt": "1"}, {"state": None}, {"outcome": "text"}):
        with pytest.raises(TypeError, match=next(iter(changes))):
            history.update_run("0" * 32, changes)


# --- idempotency ---


@ensureDeferred
async def test_the_same_key_gives_the_earlier_run(history) -> None:
    first = a_run(principal="ann", idempotency_key="k")
    await history.create_run(first)
    second = await history.create_run(a_run(principal="ann", idempotency_key="k", created_us=first.created_us + DAY_US - 1))
    assert second == first
    found, _ = await history.runs(RunQuery())
    assert [run.run_id for run in found] == [first.run_id]


@ensureDeferred
async def test_the_same_key_twice_in_one_commit_gives_one_run(history) -> None:
    runs = [a_run(principal="ann", idempotency_key="k") for _ in range(5)]
    answers = await defer.gatherResults([history.create_run(run) for run in runs])
    assert {answer.run_id for answer in answers} == {runs[0].run_id}
    assert len((await history.runs(RunQuery()))[0]) == 1


@ensureDeferred
async def test_another_principal_has_keys_of_its_own(history) -> None:
    first, second = a_run(principal="ann", idempotency_key="k"), a_run(principal="bob", idempotency_key="k")
    assert (await history.create_run(first)).run_id == first.run_id
    assert (await history.create_run(second)).run_id == second.run_id


@ensureDeferred
async def test_a_key_is_free_again_after_a_day(history) -> None:
    first = a_run(principal="ann", idempotency_key="k")
    second = a_run(principal="ann", idempotency_key="k", created_us=first.created_us + DAY_US)
    await history.create_run(first)
    assert (await history.create_run(second)).run_id == second.run_id
    assert (await history.run(first.run_id)).idempotency_key is None
    third = await history.create_run(a_run(principal="ann", idempotency_key="k", created_us=second.created_us + 1))
    assert third.run_id == second.run_id


# --- the list of runs ---


@ensureDeferred
async def test_runs_are_listed_newest_first_in_pages(history) -> None:
    records = [a_run(f"{index:032x}", created_us=index, request=b"large") for index in range(1, 131)]
    await defer.gatherResults([history.create_run(record) for record in records])
    found, cursor = [], ""
    while True:
        page, cursor = await history.runs(RunQuery(limit=40, cursor=cursor))
        found += page
        if not cursor:
            break
    assert found == [msgspec.structs.replace(record, request=b"") for record in reversed(records)]


@ensureDeferred
async def test_runs_are_searched_by_their_columns(history) -> None:
    await history.create_run(a_run("1" * 32, state="running", target="a", node_id="n1", session_id="s"))
    await history.create_run(a_run("2" * 32, adapter="cli", target="a", principal="ann", created_us=7))
    await history.create_run(a_run("3" * 32, adapter="cli", target="b", created_us=8, state="completed"))

    async def search(**words) -> str:
        return "".join(run.run_id[0] for run in (await history.runs(RunQuery(**words)))[0])

    assert await search() == "321"
    assert await search(target="a") == "21"
    assert await search(target="a", adapter="cli") == "2"
    assert await search(state="running") == "1"
    assert await search(node_id="n1") == "1"
    assert await search(session_id="s") == "1"
    assert await search(principal="ann") == "2"
    assert await search(since_us=8) == "31"
    assert await search(state="failed") == ""
    assert [run.run_id[0] for run in await history.open_runs()] == ["1", "2"]


@ensureDeferred
async def test_a_cursor_that_was_made_up_is_refused(history) -> None:
    for cursor in ("zzz", "!", "\x00", "é", "eA"):
        with pytest.raises(InvalidRequest):
            await history.runs(RunQuery(cursor=cursor))


# --- the rest ---


@ensureDeferred
async def test_lifecycle_events_are_numbered_and_replayed(history) -> None:
    made = [node_pb2.EdgeNodeEvent(kind=f"k{index}", at_us=index, detail=b"{}") for index in range(10)]
    numbers = await defer.gatherResults([history.append_event(event) for event in made])
    assert numbers == list(range(1, 11))
    assert [event.kind for event in await history.events(7, 100)] == ["k7", "k8", "k9"]
    assert [event.event_id for event in await history.events(0, 3)] == [1, 2, 3]
    assert [event.event_id for event in await history.events(None, 2)] == [9, 10]
    assert await history.events(10, 5) == []


@ensureDeferred
async def test_event_numbers_go_on_after_a_restart(history, url) -> None:
    assert await history.append_event(node_pb2.EdgeNodeEvent(kind="before")) == 1
    await history.close()
    again = History(url, reactor)
    await again.open()
    assert await again.append_event(node_pb2.EdgeNodeEvent(kind="after")) == 2
    await again.close()


@ensureDeferred
async def test_an_audit_line_says_who_did_what(history, url) -> None:
    source = run_pb2.Source(face="http", principal="ann", request_id="r1")
    await history.audit(source, "drain", {"node": "n1"})
    await history.audit(source, "drain", "words")
    assert rows_of(url, "SELECT audit_id, face, principal, request_id, action, detail FROM audit ORDER BY 1") == [
        (1, "http", "ann", "r1", "drain", '{"node": "n1"}'), (2, "http", "ann", "r1", "drain", "words")]


@ensureDeferred
async def test_sessions_are_put_and_replaced(history) -> None:
    one = SessionRecord(session_id="a", node_id="n", adapter="cli", target="t", created_us=1, used_us=1)
    two = msgspec.structs.replace(one, session_id="b", used_us=5)
    await defer.gatherResults([history.put_session(one), history.put_session(two)])
    one = msgspec.structs.replace(one, used_us=9, runs=2)
    await history.put_session(one)
    assert await history.sessions() == [one, two]


@ensureDeferred
async def test_any_text_can_be_stored_and_found(history) -> None:
    record = a_run(NASTY, target=NASTY, principal=NASTY, idempotency_key=NASTY, output_text=NASTY, node_id=NASTY)
    await history.create_run(record)
    await history.update_run(NASTY, {"prompt_text": NASTY, "outcome_code": NASTY})
    await history.append([BatchRow(NASTY, 1, 1, 1, b"\x00")])
    await history.append([BatchRow(NASTY, 1, 1, 1, b"\x00")])
    await history.append_event(node_pb2.EdgeNodeEvent(kind="a\x00b", node_id="\x00"))
    await history.audit(run_pb2.Source(principal="\x00"), NASTY, NASTY)
    await history.audit(run_pb2.Source(), "command", {NASTY: [NASTY, b"bytes", None]})
    await history.put_session(SessionRecord(session_id=NASTY, node_id=NASTY, adapter="", target="", created_us=0, used_us=0))
    stored = await history.run(NASTY)
    assert stored.run_id == stored.target == stored.prompt_text == stored.outcome_code == stored.output_text == CLEANED
    assert await history.batches(NASTY, START, 10) == [b"\x00"]
    assert await history.committed(NASTY, 1) == 1
    assert [run.run_id for run in (await history.runs(RunQuery(target=NASTY)))[0]] == [CLEANED]
    assert (await history.create_run(a_run(principal=NASTY, idempotency_key=NASTY))).run_id == CLEANED


@pytest.mark.parametrize("table", ["batches", "late", "audit"])
@ensureDeferred
async def test_what_was_recorded_cannot_be_changed_or_removed(history, url, table) -> None:
    await history.append([BatchRow("r", 1, 1, 1, b"x")])
    await history.append_late("r", 1, 1, 1, b"x")
    await history.audit(run_pb2.Source(), "a", "d")
    column = "action" if table == "audit" else "run_id"
    for statement in (f"DELETE FROM {table}", f"UPDATE {table} SET {column} = 'x'"):
        with pytest.raises(Exception, match="append-only"):
            rows_of(url, statement)


@ensureDeferred
async def test_what_is_queued_when_it_closes_is_committed(history, url) -> None:
    run_id = new_run_id()
    writes = [history.append([BatchRow(run_id, 1, seq, seq, b"x")]) for seq in range(1, 5001)]
    await history.close()
    assert all(write.called for write in writes)
    assert rows_of(url, "SELECT count(*) FROM batches") == [(5000,)]


@ensureDeferred
async def test_a_closed_history_refuses_without_raising(history) -> None:
    await history.close()
    for deferred in (history.append([BatchRow("r", 1, 1, 1, b"")]), history.run("r"), history.create_run(a_run())):
        with pytest.raises(HistoryUnavailable):
            await deferred


@ensureDeferred
async def test_a_commit_answers_all_its_writes_in_one_call_of_the_reactor(url) -> None:
    class Counting:
        calls = 0

        def __getattr__(self, name):
            return getattr(reactor, name)

        def callFromThread(self, *args):
            self.calls += 1
            reactor.callFromThread(*args)

    counting = Counting()
    history = History(url, counting)
    await history.open()
    before = counting.calls
    await defer.gatherResults([history.append([BatchRow("r", 1, seq, seq, b"x")]) for seq in range(1, 1001)])
    assert counting.calls - before <= 20
    await history.close()
