"""What a failed statement means: the database is not there now, or this one write can never be stored."""

from __future__ import annotations

import sqlite3

from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, ProgrammingError, SQLAlchemyError

from iop.errors import Conflict, HistoryUnavailable, IOPError

# What may have passed a moment later; primary result codes (https://www.sqlite.org/rescode.html).
_PASSING = frozenset((sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_IOERR,
                      sqlite3.SQLITE_FULL, sqlite3.SQLITE_NOMEM))


class Unreachable(Exception):
    """No connection could be made and prepared; the cause says why."""


def lasting(error: Exception) -> bool:
    """Whether the same statement fails again however often it is tried; all else is worth waiting for.

    A ProgrammingError with an SQLSTATE is the server's (a table or a right is missing), which someone can mend; one
    without is the driver's, about a value.
    """
    if not isinstance(error, SQLAlchemyError):
        return not isinstance(error, Unreachable)
    if isinstance(error, DBAPIError) and error.connection_invalidated:
        return False
    if isinstance(error, ProgrammingError):
        return getattr(error.orig, "sqlstate", None) is None
    return isinstance(error, (DataError, IntegrityError))


def hopeless(error: BaseException | None) -> bool:
    """Whether a file that could not be opened never will be: it is no database, is damaged, or may not be read."""
    code = getattr(getattr(error, "orig", None) or error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF not in _PASSING


def sentence(error: BaseException) -> str:
    """The driver's own first line, without the statement and its values, which may be a person's."""
    if isinstance(error, Unreachable) and error.__cause__ is not None:
        error = error.__cause__
    cause = getattr(error, "orig", None) or error
    lines = str(cause).strip().splitlines()
    return f"{type(cause).__name__}: {lines[0] if lines else ''}"[:300]


def unavailable(error: BaseException) -> HistoryUnavailable:
    return HistoryUnavailable(f"The history's database cannot be used now ({sentence(error)}).")


def refused(error: Exception) -> IOPError:
    """For what can never be stored or asked."""
    return error if isinstance(error, IOPError) else Conflict(f"The history refused this ({sentence(error)}).")
