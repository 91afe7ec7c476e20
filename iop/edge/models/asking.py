"""From a request of a model API to its run, and to the answer: what all of these APIs share.

::

    client --body--> submit --> (waits: queue, loading, prefill) --first output--> 200, chunks ..., the end
                        |                  |                                          |
                        +--- a refusal ----+---- failed: its own status               +--- failed: told as such, no end

The client leaving stops the run in every one of these phases, unless it sent `x-iop-detach: SECONDS`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.interfaces import IReactorTime

from iop.edge.models.affinity import affinity_of, priority_of
from iop.edge.models.answer import ModelAnswer
from iop.edge.models.teller import StreamTeller, WholeTeller
from iop.edge.routes_runs import PROGRAM_ADAPTERS, idempotency_key
from iop.errors import InvalidRequest, NoNode, QuotaExhausted, RateLimited
from iop.interfaces import IEdgeService
from iop.proto import run_pb2
from iop.records import RunRecord
from iop.web.errors import error_response
from iop.web.request import Request
from iop.web.responses import Response, StreamResponse

DETACH_MAX_S = 86_400
RUN_HEADERS = ("x-iop-detach", "x-iop-priority", "Idempotency-Key")      # read of every request that begins a run


class Asking:
    """Names to runs, and runs to answers."""

    def __init__(self, edge: IEdgeService, clock: IReactorTime) -> None:
        self._edge = edge
        self._clock = clock

    def run_request(self, request: Request, model: str, api: str, *, cache_key: object = None,
                    prefix: Any = (), programs: bool = True) -> run_pb2.RunRequest:
        """The run of a request whose body is of the model API `api`. Raises NoSuchTarget, NoNode, Forbidden and
        InvalidRequest. For `cache_key` and `prefix` see affinity_of(); `programs`: they can answer this API too."""
        if self.is_program(model):
            request.principal.require("programs")
            if not programs:
                raise InvalidRequest(f"The model {model[:100]!r} is a program, which does not answer {api}.")
        if not self._edge.ready(model):
            raise NoNode(f"The model {model[:100]!r} is known, but no node that offers it is ready.")
        return run_pb2.RunRequest(target=model, body=request.body, api=api, priority=priority_of(request.header),
                                  affinity=affinity_of(request.principal.name, request.header, cache_key, prefix))

    def is_program(self, model: str) -> bool:
        """Whether a name can mean a program. Raises NoSuchTarget."""
        return any(adapter in PROGRAM_ADAPTERS for adapter, _, _ in self._edge.targets(model))

    async def answered(self, request: Request, run: run_pb2.RunRequest, streams: bool | None,
                       stream: Callable[[RunRecord], StreamTeller],
                       body: Callable[[RunRecord], WholeTeller]) -> Response | StreamResponse:
        """The run's answer: as it arises, or in one piece. `stream` and `body` make what tells it, for the run's record."""
        if not streams:
            return await self.whole(request, run, body)
        return await self._asked(request, run, lambda answer: answer.streamed(stream(answer.record)))

    async def whole(self, request: Request, run: run_pb2.RunRequest,
                    teller_of: Callable[[RunRecord], WholeTeller]) -> Response | StreamResponse:
        """The run's answer in one piece."""
        return await self._asked(request, run, lambda answer: answer.whole(teller_of(answer.record)))

    async def _asked(self, request: Request, run: run_pb2.RunRequest,
                     told: Callable[[ModelAnswer], Any]) -> Response | StreamResponse:
        answer = ModelAnswer(self._edge, self._clock, request.source, _detach_s(request))
        done = False
        try:
            await answer.begin(run, idempotency_key(request))
            response: Response | StreamResponse = await told(answer)
            done = True
            return response
        except (RateLimited, QuotaExhausted) as error:
            left = self._edge.allowance(request.principal.name)
            return error_response(error, request.dialect, left, request.request_id)
        finally:
            if not done:         # the client has left, or something failed: nobody will read this run
                answer.abandon()


def created_s(record: RunRecord) -> int:
    """When a run was made, as model APIs tell it."""
    return record.created_us // 1_000_000


def _detach_s(request: Request) -> float | None:
    """Seconds the run may go on without its client; None: not at all."""
    text = request.header("x-iop-detach")
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 9 and int(text) <= DETACH_MAX_S):
        raise InvalidRequest(f"x-iop-detach is a whole number of seconds, {DETACH_MAX_S} at most.")
    return float(text)
