"""Bring a database to the schema of this version: all migrations in one transaction, or none.

Two lines of migrations stand in one folder, told apart by their branch label: `history` of an edge, `record` of a node.
"""

from __future__ import annotations

import threading

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from iop.errors import ConfigError
from iop.store.engine import BEGIN

# Alembic keeps its state in the module; two stores of one process open one after the other.
_alembic = threading.Lock()
_POSTGRESQL_LOCK = 0x696F70      # so that two processes do not migrate at once


def migrate(connection: Connection, line: str) -> str:
    """Upgrade to the newest revision of `line`; gives that revision. Raises ConfigError for a schema that is not of this
    line or newer than this version knows."""
    config = Config()
    config.set_main_option("script_location", "iop.store:migrations")
    config.attributes["connection"] = connection
    script = ScriptDirectory.from_config(config)
    head = script.get_revision(f"{line}@head").revision
    if _current(connection) == (head,):
        return head
    with _alembic:
        connection.exec_driver_sql(BEGIN[connection.dialect.name])
        try:
            _upgrade(connection, config, script, line)
        except BaseException:
            connection.exec_driver_sql("ROLLBACK")
            raise
        connection.exec_driver_sql("COMMIT")
    return head


def _upgrade(connection: Connection, config: Config, script: ScriptDirectory, line: str) -> None:
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql("SELECT pg_advisory_xact_lock(%s)", (_POSTGRESQL_LOCK,))
    known = {entry.revision for entry in script.iterate_revisions(f"{line}@head", "base")}
    for revision in _current(connection):
        if revision not in known:
            raise ConfigError(f"The database has the schema {revision}, which this version of IOP does not know for a "
                              f"{line}: it is newer or of something else. Install the version that made it, or name "
                              "another database.")
    command.upgrade(config, f"{line}@head")


def _current(connection: Connection) -> tuple[str, ...]:
    return tuple(MigrationContext.configure(connection).get_current_heads())
