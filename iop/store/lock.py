"""One process to a database: two would number the same events, and an older SQLite could corrupt its file (engine.py)."""

from __future__ import annotations

import os

from sqlalchemy import Connection, text
from sqlalchemy.engine import URL

from iop.files import take_lock

_POSTGRESQL_LOCK = 0x494F50      # any number, the same for every IOP


class InUse(Exception):
    """Another process holds the database."""


class FileLock:
    """A lock beside an SQLite file."""

    def __init__(self, url: URL) -> None:
        memory = url.get_backend_name() != "sqlite" or url.database in (None, "", ":memory:")
        self._path = "" if memory else f"{url.database}.lock"
        self._descriptor = -1

    def take(self) -> None:
        """Raises InUse; holds nothing and does nothing where the database is no file."""
        if not self._path or self._descriptor >= 0:
            return
        descriptor = take_lock(self._path)
        if descriptor is None:
            raise InUse
        self._descriptor = descriptor

    def release(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def take_session_lock(connection: Connection) -> None:
    """The same in PostgreSQL, for as long as the connection lives. Raises InUse."""
    if connection.dialect.name == "postgresql":
        if not connection.execute(text("SELECT pg_try_advisory_lock(:key)"), {"key": _POSTGRESQL_LOCK}).scalar():
            raise InUse("another process uses this database as its history")
