"""Conversations that later runs continue: each lives on one node, the one that its first run was placed on."""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from iop.edge.placement import Name
from iop.errors import Conflict, InvalidRequest, NotFound
from iop.events import now_us
from iop.records import SessionRecord

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")

log = Logger()


def check_session_id(session_id: str) -> None:
    """Raises InvalidRequest."""
    if _ID.fullmatch(session_id) is None:
        raise InvalidRequest("session_id is made of letters, digits and . _ : -, at most 128 of them.")


class Sessions:
    """All sessions of one edge, in memory; history keeps them."""

    def __init__(self, history: Any) -> None:
        self._history = history
        self._sessions: dict[str, SessionRecord] = {}

    async def load(self) -> None:
        """Take up what history has."""
        self._sessions = {record.session_id: record for record in await self._history.sessions()}

    def holder(self, session_id: str, names: Sequence[Name]) -> tuple[str, Sequence[Name]]:
        """The node that holds it and which of `names` it runs there; ("", names) when its first run is yet to be placed.
        Raises Conflict."""
        record = self._sessions.get(session_id)
        if record is None:
            return "", names
        if record.closed_us:
            raise Conflict(f"The session {session_id} is closed.", hint="Submit the run with another session_id.")
        name = record.adapter, record.target
        if name not in names:
            raise Conflict(f"The session {session_id} belongs to {record.adapter}/{record.target}.")
        return record.node_id, (name,)

    def placed(self, session_id: str, node_id: str, adapter: str, target: str) -> None:
        """One more run of it goes to `node_id`; the first one makes it."""
        now = now_us()
        record = self._sessions.setdefault(session_id, SessionRecord(
            session_id=session_id, node_id=node_id, adapter=adapter, target=target, created_us=now, used_us=now))
        record.used_us, record.runs = now, record.runs + 1
        self._save(record).addErrback(
            lambda failure: log.warn("session {session_id} is not stored: {trouble}", session_id=session_id,
                                     trouble=failure.getErrorMessage()))

    def all(self) -> list[SessionRecord]:
        """The last used first."""
        return [copy.copy(record) for record in sorted(self._sessions.values(), key=lambda one: -one.used_us)]

    def get(self, session_id: str) -> SessionRecord:
        """Raises NotFound."""
        record = self._sessions.get(session_id)
        if record is None:
            raise NotFound(f"There is no session {session_id[:128]!r}.")
        return record

    async def close(self, session_id: str) -> SessionRecord:
        """No further run may continue it. Idempotent; raises NotFound."""
        record = self.get(session_id)
        if not record.closed_us:
            record.closed_us = now_us()
            await self._save(record)
        return copy.copy(record)

    def _save(self, record: SessionRecord) -> Deferred[None]:
        saved: Deferred[None] = self._history.put_session(copy.copy(record))
        return saved
