"""What runs have used, against a model, on both databases."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy.dialects import sqlite

from iop.records import RunRecord, UsageQuery
from iop.store import tables, usage
from iop.store.engine import file_url, make_engine
from iop.store.migrate import migrate
from iop.store.work import Write
from iop.store.writer import HistoryWriter
from iop.testing.history import FakeHistory
from tests.store.conftest import ask

USED = st.tuples(st.sampled_from("ab"), st.sampled_from("mn"), st.sampled_from(("", "n1")), st.integers(1, 20),
                 st.integers(0, 99))


@pytest.mark.parametrize("by", [(), ("key",), ("model", "node"), ("node", "key", "model")])
def test_usage_is_the_sum_of_all_runs_of_a_time_whatever_the_page(connection, monkeypatch, by) -> None:
    monkeypatch.setattr(usage, "PAGE_RUNS", 3)
    serial = iter(range(1, 10 ** 9))

    @settings(max_examples=40, deadline=None, database=None)
    @given(st.lists(USED, max_size=30), st.sampled_from(("", "a")))
    def summed(runs, principal) -> None:
        connection.execute(tables.runs.delete())
        fake, records = FakeHistory(), []
        for key, model, node, at, tokens in runs:
            records.append(RunRecord(
                run_id=f"{next(serial):032x}", state="completed", adapter="x", target=model, node_id=node, principal=key,
                created_us=at, prompt_tokens=tokens, completion_tokens=1, cached_tokens=tokens // 2, cost_micros=3))
            fake.create_run(records[-1])
        HistoryWriter().carry_out(connection, [Write("create", record, 0) for record in records])
        query = UsageQuery(by=by, since_us=3, until_us=15, principal=principal)
        told = ask(usage.summed(connection, query))
        expected = []
        fake.usage(query).addCallback(expected.extend)
        assert told == expected

    summed()


def test_a_usage_report_reads_an_index_and_no_rows(tmp_path) -> None:
    statement = usage._used(UsageQuery(by=("key", "model", "node"), principal="p"), 1, 9)
    with make_engine(file_url(f"{tmp_path}/x.db")).connect() as connection:
        migrate(connection, "history")
        compiled = statement.compile(dialect=sqlite.dialect(), compile_kwargs={"literal_binds": True})
        plan = " ".join(row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {compiled}"))
    assert "USING COVERING INDEX runs_by_usage" in plan
