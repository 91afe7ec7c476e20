"""Statements of many rows, as few as possible: one INSERT or UPDATE for all rows of a commit.

sqlite3 lets go of the interpreter at every step and must win it back from a busy reactor each time (5 ms), so what counts
is the number of statements, not of rows. Their texts are made once per size and kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial

from sqlalchemy import BigInteger, Connection, LargeBinary, Table

from iop.store.statement import execute
from iop.store.text import clean

Row = tuple[object, ...]

_VARIABLES = 32766               # SQLITE_MAX_VARIABLE_NUMBER since 3.32
_POSTGRESQL_ROWS = 10_000


def insert(connection: Connection, table: Table, columns: Sequence[str], rows: Sequence[Row]) -> int:
    """Insert rows; those whose key is there already are left out. Gives how many were inserted.

    The columns of the primary key must come first.
    """
    if connection.dialect.name == "postgresql":
        return _in_arrays(connection, _postgresql_insert(table, tuple(columns)), rows)
    return _in_ladder(connection, table, tuple(columns), rows, _sqlite_insert, _blank(table, rows))


def update(connection: Connection, table: Table, columns: Sequence[str], rows: Sequence[Row], keys: int = 1,
           only: str = "") -> int:
    """Set `columns[keys:]` of the rows whose first `keys` columns have these values. Gives how many there were.

    `only`: the name of a column that must be 0, so that what is set once stays.
    """
    if connection.dialect.name == "postgresql":
        return _in_arrays(connection, _postgresql_update(table, tuple(columns), keys, only), rows)
    return _in_ladder(connection, table, tuple(columns), rows, partial(_sqlite_update, keys=keys, only=only),
                      rows[-1] if rows else ())


def _in_arrays(connection: Connection, statement: str, rows: Sequence[Row]) -> int:
    count = 0
    for start in range(0, len(rows), _POSTGRESQL_ROWS):
        part = rows[start:start + _POSTGRESQL_ROWS]
        arrays = tuple([clean(value) for value in column] for column in zip(*part, strict=True))
        count += execute(connection, statement, arrays)
    return count


def _in_ladder(connection: Connection, table: Table, columns: tuple[str, ...], rows: Sequence[Row], statement_for,
               filler: Row) -> int:
    """In chunks whose sizes are powers of two, the last one filled up with rows that change nothing: so few texts
    exist that SQLite keeps them all compiled."""
    largest = 1 << ((_VARIABLES // len(columns)).bit_length() - 1)
    count = 0
    for start in range(0, len(rows), largest):
        part = rows[start:start + largest]
        size = 1 << (len(part) - 1).bit_length()
        values = [clean(value) if isinstance(value, str) else value for row in part for value in row]
        values.extend([clean(value) for value in filler] * (size - len(part)))
        count += execute(connection, statement_for(table, columns, size), values)
    return count


def _blank(table: Table, rows: Sequence[Row]) -> Row:
    """The last row once more, without its contents: its key is there already, so it is left out."""
    if not rows:
        return ()
    keys = len(table.primary_key.columns)
    return rows[-1][:keys] + tuple(None if value is None else type(value)() for value in rows[-1][keys:])


# Names in these texts come from iop.store.tables alone and every value is bound (D-46): what S608 looks for is not here.

@cache
def _sqlite_insert(table: Table, columns: tuple[str, ...], size: int) -> str:
    return (f"INSERT INTO {table.name} ({', '.join(columns)}) VALUES {_marks(columns, size)} "  # noqa: S608
            "ON CONFLICT DO NOTHING")


@cache
def _sqlite_update(table: Table, columns: tuple[str, ...], size: int, keys: int, only: str) -> str:
    return (f"WITH new({', '.join(columns)}) AS (VALUES {_marks(columns, size)}) "  # noqa: S608
            f"UPDATE {table.name} SET {_assignments(columns, keys)} FROM new WHERE {_matches(table, columns, keys, only)}")


@cache
def _postgresql_insert(table: Table, columns: tuple[str, ...]) -> str:
    return (f"INSERT INTO {table.name} ({', '.join(columns)}) SELECT * FROM unnest({_arrays(table, columns)}) "  # noqa: S608
            "ON CONFLICT DO NOTHING")


@cache
def _postgresql_update(table: Table, columns: tuple[str, ...], keys: int, only: str) -> str:
    return (f"UPDATE {table.name} SET {_assignments(columns, keys)} FROM unnest({_arrays(table, columns)}) "  # noqa: S608
            f"AS new({', '.join(columns)}) WHERE {_matches(table, columns, keys, only)}")


def _marks(columns: tuple[str, ...], size: int) -> str:
    return ", ".join(["(" + ", ".join("?" * len(columns)) + ")"] * size)


def _assignments(columns: tuple[str, ...], keys: int) -> str:
    return ", ".join(f"{name} = new.{name}" for name in columns[keys:])


def _matches(table: Table, columns: tuple[str, ...], keys: int, only: str) -> str:
    conditions = [f"{table.name}.{name} = new.{name}" for name in columns[:keys]]
    return " AND ".join(conditions + ([f"{table.name}.{only} = 0"] if only else []))


def _arrays(table: Table, columns: tuple[str, ...]) -> str:
    """``%s::bigint[], %b::bytea[], ...``: one array a column, bytes in binary."""
    kinds = {BigInteger: "%s::bigint[]", LargeBinary: "%b::bytea[]"}
    return ", ".join(kinds.get(type(table.columns[name].type), "%s::text[]") for name in columns)
