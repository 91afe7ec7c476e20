"""Which database a URL means, and how a connection to it is set up.

A transaction is begun and committed by statements of ours: the drivers' own ideas of when one begins are switched off.
"""

from __future__ import annotations

import os
import sqlite3

from sqlalchemy import Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError
from sqlalchemy.pool import NullPool

from iop.errors import ConfigError
from iop.files import check_private

OLDEST_SQLITE = (3, 35, 0)           # UPDATE ... FROM, RETURNING
BUSY_TIMEOUT_MS = 5000               # how long one waits for another's lock

# Sent with BEGIN. IMMEDIATE takes the write lock at once: upgrading a read later fails without waiting (D-47).
BEGIN = {"sqlite": "BEGIN IMMEDIATE", "postgresql": "BEGIN"}

NO_FILE = (0, 0)

_SQLITE_SETTINGS = (
    "PRAGMA page_size=8192",             # of a new file: batches of tens of KB cost a third less than with 4096
    f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}",
    "PRAGMA journal_mode=WAL",
    "PRAGMA synchronous=FULL",
    "PRAGMA foreign_keys=ON",
    "PRAGMA trusted_schema=OFF",
    "PRAGMA journal_size_limit=67108864",
    "PRAGMA cache_size=-16384",
    "PRAGMA temp_store=MEMORY",          # a statement of several rows keeps what it may have to undo: in a file otherwise
)

# A database that is gone must be noticed by us, and we by it: a session that outlived its link would keep its lock.
_POSTGRESQL_SETTINGS: dict[str, object] = {
    "connect_timeout": 5, "tcp_user_timeout": 10_000, "keepalives_idle": 5, "keepalives_interval": 2,
    "keepalives_count": 3, "application_name": "iop",
    "options": "-c statement_timeout=30s -c lock_timeout=5s -c synchronous_commit=on -c client_encoding=UTF8 "
               "-c tcp_keepalives_idle=5 -c tcp_keepalives_interval=2 -c tcp_keepalives_count=3 -c tcp_user_timeout=10s",
}


def parse_url(text: str) -> URL:
    """The URL of a history; ``postgresql://`` means psycopg 3. Raises ConfigError."""
    try:
        url = make_url(text)
        dialect = url.get_backend_name()
    except (ArgumentError, NoSuchModuleError, ValueError):
        raise ConfigError("The history's URL cannot be read; it looks like sqlite:////var/lib/iop/history.db or "
                          "postgresql://user@host/database.") from None
    if dialect not in BEGIN:
        raise ConfigError(f"The history can be kept in sqlite or postgresql, not in {dialect}.")
    return url.set(drivername="postgresql+psycopg") if dialect == "postgresql" else url.set(drivername="sqlite")


def file_url(path: str) -> URL:
    """The URL of an SQLite file."""
    return URL.create("sqlite", database=path)


def one_connection_only(version: tuple[int, int, int]) -> bool:
    """Whether this SQLite can corrupt a WAL that several connections use: 3.7.0 to 3.51.2, mended in 3.50.7 and
    3.44.6 as well."""
    if version[:2] == (3, 50):
        return version < (3, 50, 7)
    if version[:2] == (3, 44):
        return version < (3, 44, 6)
    return version < (3, 51, 3)


def shares_connection(url: URL) -> bool:
    """Whether reads must go through the writer's connection."""
    return url.get_backend_name() == "sqlite" and (
        url.database in (None, "", ":memory:") or one_connection_only(sqlite3.sqlite_version_info))


def make_engine(url: URL) -> Engine:
    """An engine whose connections are set up; connects to nothing. Raises ConfigError."""
    if url.get_backend_name() == "sqlite":
        return _sqlite(url)
    try:
        return create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT", hide_parameters=True,
                             connect_args={**_POSTGRESQL_SETTINGS, **_settings_in(url)})
    except ImportError:
        raise ConfigError("PostgreSQL needs the package psycopg; install it with `pip install 'iop[postgresql]'`."
                          ) from None


def _settings_in(url: URL) -> dict[str, object]:
    """What the URL says itself stands above ours."""
    return {name: value for name, value in url.query.items() if name in _POSTGRESQL_SETTINGS}


def _sqlite(url: URL) -> Engine:
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        raise ConfigError(f"SQLite {sqlite3.sqlite_version} is too old; IOP needs "
                          f"{'.'.join(map(str, OLDEST_SQLITE))} or newer.")
    engine = create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT", hide_parameters=True)

    @event.listens_for(engine, "connect")
    def set_up(connection: sqlite3.Connection, _record: object) -> None:
        for setting in _SQLITE_SETTINGS:
            connection.execute(setting)

    return engine


def file_of(url: URL) -> tuple[int, int]:
    """Which file an SQLite database is; NO_FILE where it is none, or is away."""
    if url.get_backend_name() != "sqlite" or url.database in (None, "", ":memory:"):
        return NO_FILE
    try:
        found = os.stat(str(url.database))
    except OSError:
        return NO_FILE
    return found.st_dev, found.st_ino


def make_file(url: URL) -> None:
    """See to it that an SQLite file exists and only its owner may read it (D-48). Raises ConfigError."""
    path = url.database
    if url.get_backend_name() != "sqlite" or not path or path == ":memory:":
        return
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        check_private(path)
    except OSError as error:
        raise ConfigError(f"The database {path} cannot be made: {error.strerror}.") from None
