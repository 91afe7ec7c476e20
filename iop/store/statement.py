"""Statements of ours on the way to the driver: SQLAlchemy's own way costs 30 us each, several times in every commit.

Errors come as SQLAlchemy's all the same, so that whoever judges one need not know where it comes from.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError


def execute(connection: Connection, statement: str, values: Sequence[object] = ()) -> int:
    """Carry out a statement in the driver's own notation; gives how many rows it inserted or changed."""
    driver = connection.connection.driver_connection
    try:
        return driver.execute(statement, values).rowcount
    except connection.dialect.dbapi.Error as error:
        dialect = connection.dialect
        raise DBAPIError.instance(statement, None, error, dialect.dbapi.Error, hide_parameters=True, dialect=dialect,
                                  connection_invalidated=dialect.is_disconnect(error, driver, None)) from error
