"""Statements straight to the driver, whose errors are SQLAlchemy's all the same."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

import pytest
from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError, OperationalError, ProgrammingError

from iop.store.engine import make_engine, parse_url
from iop.store.faults import lasting
from iop.store.statement import execute


@pytest.fixture
def connection(tmp_path) -> Iterator[Connection]:
    with make_engine(parse_url(f"sqlite:///{tmp_path}/h.db")).connect() as connection:
        execute(connection, "CREATE TABLE t (a INTEGER PRIMARY KEY)")
        yield connection


def test_it_tells_how_many_rows_it_touched(connection: Connection) -> None:
    assert execute(connection, "INSERT INTO t VALUES (?), (?), (?)", [1, 2, 3]) == 3
    assert execute(connection, "INSERT INTO t VALUES (?), (?) ON CONFLICT DO NOTHING", [3, 4]) == 1
    assert execute(connection, "UPDATE t SET a = a + 10 WHERE a > ?", [2]) == 2


def test_an_error_is_the_one_that_sqlalchemy_would_raise(connection: Connection) -> None:
    execute(connection, "INSERT INTO t VALUES (1)")
    with pytest.raises(IntegrityError) as twice:
        execute(connection, "INSERT INTO t VALUES (1)")
    with pytest.raises(OperationalError) as missing:
        execute(connection, "INSERT INTO nowhere VALUES (1)")
    assert [lasting(twice.value), lasting(missing.value)] == [True, False]
    assert isinstance(missing.value.__cause__, sqlite3.OperationalError)


def test_no_value_stands_in_an_error(connection: Connection) -> None:
    with pytest.raises(OperationalError) as refusal:
        execute(connection, "INSERT INTO nowhere VALUES (?)", ["a secret"])
    assert "a secret" not in str(refusal.value)


def test_a_driver_that_is_gone_is_told_as_such(connection: Connection) -> None:
    connection.connection.driver_connection.close()
    with pytest.raises(ProgrammingError) as gone:
        execute(connection, "INSERT INTO t VALUES (1)")
    assert gone.value.connection_invalidated
    assert not lasting(gone.value)
