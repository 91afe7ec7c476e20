"""Migrations, and which databases are refused."""

from __future__ import annotations

import os
import sqlite3

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from pytest_twisted import ensureDeferred
from sqlalchemy import text
from twisted.internet import reactor

from iop.errors import ConfigError, HistoryUnavailable
from iop.store import tables
from iop.store.engine import file_url, make_engine, one_connection_only, parse_url, shares_connection
from iop.store.history import History
from iop.store.migrate import migrate
from iop.store.record import NodeRecord
from iop.store.store import OPEN_PATIENCE_S


@pytest.mark.parametrize("line", ["history", "record"])
def test_the_migrations_make_exactly_the_tables_that_queries_use(url, line) -> None:
    with make_engine(parse_url(url)).connect() as connection:
        migrate(connection, line)
        differences = compare_metadata(MigrationContext.configure(connection), getattr(tables, line))
    assert differences == []


def test_a_database_is_migrated_once(url) -> None:
    with make_engine(parse_url(url)).connect() as connection:
        assert migrate(connection, "history") == migrate(connection, "history") == "history_0004"


def test_runs_that_waited_for_their_node_do_so_after_a_migration(url) -> None:
    with make_engine(parse_url(url)).connect() as connection:
        config = Config()
        config.set_main_option("script_location", "iop.store:migrations")
        config.attributes["connection"] = connection
        command.upgrade(config, "history_0001")
        for run_id, state in (("a", "queued"), ("b", "placed")):
            connection.execute(text("INSERT INTO runs (run_id, state, node_id, request, outcome) "
                                    "VALUES (:run_id, :state, 'n1', :none, :none)"),
                               {"run_id": run_id, "state": state, "none": b""})
        migrate(connection, "history")
        rows = connection.execute(text("SELECT run_id, pin, cancel_us FROM runs ORDER BY run_id")).all()
    assert [tuple(row) for row in rows] == [("a", "n1", 0), ("b", "", 0)]


@pytest.mark.parametrize("line", ["history", "record"])
def test_a_newer_schema_is_refused_and_left_alone(url, line) -> None:
    with make_engine(parse_url(url)).connect() as connection:
        migrate(connection, line)
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = 'later_0009'")
        with pytest.raises(ConfigError, match="later_0009"):
            migrate(connection, line)
        assert connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar() == "later_0009"


@ensureDeferred
async def test_a_history_with_a_newer_schema_does_not_open(history, url) -> None:
    await history.close()
    with make_engine(parse_url(url)).connect() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = 'later_0009'")
    again = History(url, reactor)
    with pytest.raises(ConfigError, match="newer"):
        await again.open()
    await again.close()
    with pytest.raises(HistoryUnavailable):
        await again.run("r")


@ensureDeferred
async def test_a_node_record_is_no_history(tmp_path) -> None:
    record = NodeRecord(f"{tmp_path}/x.db", reactor)
    await record.open()
    await record.close()
    history = History(f"sqlite:///{tmp_path}/x.db", reactor)
    with pytest.raises(ConfigError, match="something else"):
        await history.open()
    await history.close()


@ensureDeferred
async def test_a_file_that_others_may_read_is_refused(tmp_path) -> None:
    path = tmp_path / "history.db"
    path.write_bytes(b"")
    os.chmod(path, 0o644)
    history = History(f"sqlite:///{path}", reactor)
    with pytest.raises(ConfigError, match="chmod 600"):
        await history.open()
    await history.close()


@ensureDeferred
async def test_a_folder_that_is_missing_is_told(tmp_path) -> None:
    history = History(f"sqlite:///{tmp_path}/none/history.db", reactor)
    with pytest.raises(ConfigError, match="No such file"):
        await history.open()
    await history.close()


def _damage(path, how: str) -> None:
    if how == "folder":
        path.mkdir(mode=0o700)
        return
    store = sqlite3.connect(path)
    store.execute("CREATE TABLE runs (run_id TEXT)")
    store.commit()
    store.close()
    data = path.read_bytes()
    path.write_bytes({"garbage": os.urandom(40_000), "text": b"no database\n" * 100, "torn": data[:1000],
                      "header": data[:16] + os.urandom(84) + data[100:], "other": data}[how])
    path.chmod(0o600)


@pytest.mark.parametrize("how", ["folder", "garbage", "text", "torn", "header", "other"])
@ensureDeferred
async def test_a_file_that_is_no_database_is_told_at_once(tmp_path, how) -> None:
    path = tmp_path / "history.db"
    _damage(path, how)
    history = History(f"sqlite:///{path}", reactor)
    began = reactor.seconds()
    with pytest.raises(ConfigError, match="history.db cannot be used"):
        await history.open()
    assert reactor.seconds() - began < OPEN_PATIENCE_S / 2
    await history.close()


@pytest.mark.parametrize("url_text", ["", "history.db", "oracle://x", "mysql://u@h/d", "nonsense://", "sqlite//x"])
def test_a_url_that_means_no_history_is_refused(url_text) -> None:
    with pytest.raises(ConfigError):
        parse_url(url_text)


def test_a_postgresql_url_means_psycopg_3() -> None:
    assert parse_url("postgresql://u@h/d").drivername == "postgresql+psycopg"
    assert parse_url("postgresql+psycopg2://u@h/d").drivername == "postgresql+psycopg"


@pytest.mark.parametrize(("version", "single"), [
    ((3, 40, 1), True), ((3, 44, 5), True), ((3, 44, 6), False), ((3, 45, 0), True), ((3, 50, 6), True),
    ((3, 50, 7), False), ((3, 51, 2), True), ((3, 51, 3), False), ((3, 52, 0), False), ((4, 0, 0), False)])
def test_which_sqlite_may_use_several_connections(version, single) -> None:
    assert one_connection_only(version) is single


def test_reads_have_a_connection_of_their_own_where_that_is_safe(monkeypatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 51, 3))
    assert not shares_connection(file_url("/x.db"))
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 51, 2))
    assert shares_connection(file_url("/x.db"))
    assert not shares_connection(parse_url("postgresql://u@h/d"))


def test_an_sqlite_connection_is_set_up_safely(tmp_path) -> None:
    with make_engine(file_url(f"{tmp_path}/x.db")).connect() as connection:
        values = {name: connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in (
            "journal_mode", "synchronous", "busy_timeout", "foreign_keys", "trusted_schema")}
    assert values == {"journal_mode": "wal", "synchronous": 2, "busy_timeout": 5000, "foreign_keys": 1,
                      "trusted_schema": 0}
