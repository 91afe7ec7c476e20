"""What a request must pass to become a run: its shape, what it names, and what its key allows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from iop.edge import submit
from iop.edge.allowances import Allowances
from iop.edge.registry import Registry
from iop.edge.sessions import check_session_id
from iop.edge.spent import day_start_us, month_start_us
from iop.events import now_us
from iop.keys import KeyRing
from iop.proto.run_pb2 import RunRequest, Source
from iop.records import RunRecord, UsageQuery


class Intake:
    """`queue_s(adapter, target)`: how long a run may wait where its request does not say."""

    def __init__(self, history: Any, registry: Registry, keyring_of: Callable[[], KeyRing],
                 queue_s: Callable[[str, str], float], clock: Any) -> None:
        self._history = history
        self._registry = registry
        self._keyring_of = keyring_of
        self._queue_s = queue_s
        self.allowances = Allowances(lambda owner: keyring_of().limits_of(owner), lambda owner: keyring_of().may_hurry(owner),
                                     clock.seconds, now_us)

    async def load(self) -> None:
        """Take up what keys have used of this day and month, where one has a budget for them."""
        if self._keyring_of().budgeted:
            now = now_us()
            month = await self._history.usage(UsageQuery(by=("key",), since_us=month_start_us(now)))
            day = await self._history.usage(UsageQuery(by=("key",), since_us=day_start_us(now)))
            self.allowances.load(day, month)

    def take(self, request: RunRequest, source: Source, key: str | None) -> tuple[RunRecord, RunRequest]:
        """Its row and the request as it is stored and sent. Raises InvalidRequest, TooLarge, NoSuchTarget, Forbidden,
        RateLimited and QuotaExhausted."""
        submit.check(request)
        if request.session_id:
            check_session_id(request.session_id)
        if key is not None:
            submit.check_idempotency_key(key)
        named = self._registry.named(request.adapter, request.target)
        adapter, target = named.names[0]
        self.allowances.permit(source.principal, named.alias or target, ["/".join(name) for name in named.names])
        self.allowances.admit(source.principal)
        stored = submit.stored_request(request, source, adapter, target, queue_s=self._queue_s(adapter, target),
                                       retry_safe=self._registry.retry_safe(named.names))
        stored.priority = self.allowances.priority(source.principal, stored.priority)
        return submit.record_of(stored, key, named.alias, named.node_id), stored
