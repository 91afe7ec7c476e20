"""The OpenAI face: chat/completions and models (model-apis.md sections 0 to 4).

::

    client --body--> submit --> (waits: queue, loading, prefill) --first output--> 200, chunks ..., [DONE]
                        |                  |                                          |
                        +--- a refusal ----+---- failed: its own status               +--- failed: an error object, no [DONE]

The client leaving stops the run in every one of these phases, unless it sent `x-iop-detach: SECONDS`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from iop.edge.chat import ChatBody, ChatStream, Ending
from iop.edge.routes_runs import PROGRAM_ADAPTERS, idempotency_key
from iop.errors import InvalidRequest, IOPError, NoNode
from iop.events import json_encode
from iop.interfaces import IEdgeService, IRunCursor
from iop.proto import run_pb2
from iop.records import ModelEntry, RunRecord
from iop.runs import START
from iop.web import strictjson
from iop.web.errors import OPENAI, RETRY_AFTER_S
from iop.web.request import Request
from iop.web.responses import Response, StreamResponse, json_response
from iop.web.route import Route
from iop.web.sse import COMMENT

log = Logger()

KEEPALIVE_S = 10.0           # after this long without output the 200 goes out, with a comment
TAKE_BYTES = 256 * 1024
DETACH_MAX_S = 86_400
GONE = "client disconnected"


class StreamOptions(msgspec.Struct, frozen=True):
    include_usage: bool | None = None


class ChatRequest(msgspec.Struct, frozen=True):
    """What IOP itself reads of a body; the whole body travels to the backend, fields it does not know included."""

    model: str
    messages: list[Any]
    stream: bool | None = None
    stream_options: StreamOptions | None = None


class OpenAIRoutes:
    """The model API in OpenAI's dialect."""

    def __init__(self, edge: IEdgeService, clock: IReactorTime, body_limit: int) -> None:
        self._edge = edge
        self._clock = clock
        self._body_limit = body_limit

    def routes(self) -> list[Route]:
        return [
            Route("POST", "/v1/chat/completions", "models", self.chat, "Chat, streaming or not", body=ChatRequest, query=None,
                  body_limit=self._body_limit, dialect=OPENAI, answer="chat", streams=True,
                  errors=(404, 409, 429, 502, 503, 504), headers=("x-iop-detach", "Idempotency-Key")),
            Route("GET", "/v1/models", "models", self.models, "List the models", query=None, dialect=OPENAI,
                  answer="openai_models"),
            Route("GET", "/v1/models/{model...}", "models", self.model, "Show a model", query=None, dialect=OPENAI,
                  answer="openai_model", errors=(404,)),
        ]

    async def models(self, request: Request) -> Response:
        return json_response({"object": "list", "data": [model_json(entry) for entry in self._edge.models()]})

    async def model(self, request: Request) -> Response:
        name = request.args["model"]
        known = self._edge.models()
        for entry in known:
            if entry.name == name:
                return json_response(model_json(entry))
        adapter, target, _ = self._edge.resolve(name)
        entry = next((one for one in known if (one.adapter, one.target) == (adapter, target)), None)
        created_us = entry.created_us if entry is not None else 0
        return json_response(model_json(ModelEntry(name=name, adapter=adapter, target=target, created_us=created_us,
                                                   ready=True)))

    async def chat(self, request: Request) -> Response | StreamResponse:
        asked = strictjson.convert(strictjson.loads(request.body), ChatRequest)
        run = self._run_request(request, asked)
        answer = ChatAnswer(self._edge, self._clock, request.source, _detach_s(request))
        done = False
        try:
            await answer.begin(run, idempotency_key(request))
            response = await (answer.streamed(asked) if asked.stream else answer.whole(asked.model))
            done = True
            return response
        finally:
            if not done:         # the client has left, or something failed: nobody will read this run
                answer.abandon()

    def _run_request(self, request: Request, asked: ChatRequest) -> run_pb2.RunRequest:
        """The run of a chat. Raises NoSuchTarget, NoNode and Forbidden."""
        adapter, target, node_id = self._edge.resolve(asked.model)
        if adapter in PROGRAM_ADAPTERS:
            request.principal.require("programs")
        if not self._is_ready(adapter, target, node_id):
            raise NoNode(f"The model {asked.model!r} is known, but no node that offers it is ready.")
        name = f"{node_id}/{adapter}/{target}" if node_id else target
        return run_pb2.RunRequest(adapter=adapter, target=name, body=request.body, api="chat/completions")

    def _is_ready(self, adapter: str, target: str, node_id: str) -> bool:
        if not node_id:
            return any(entry.ready for entry in self._edge.models() if (entry.adapter, entry.target) == (adapter, target))
        node = self._edge.node(node_id)
        return node.state == "up" and not node.draining and any(
            one.ready for one in node.targets if (one.adapter, one.target) == (adapter, target))


class ChatAnswer:
    """One chat under way: its run, its reader, and who is to be told when the client leaves."""

    def __init__(self, edge: IEdgeService, clock: IReactorTime, source: run_pb2.Source, detach_s: float | None) -> None:
        self._edge = edge
        self._clock = clock
        self._source = source
        self._detach_s = detach_s
        self._record: RunRecord | None = None
        self._cursor: IRunCursor | None = None
        self._abandoned = False
        self._woken = False
        self._waiting: Deferred[None] | None = None

    async def begin(self, request: run_pb2.RunRequest, key: str | None) -> None:
        """Submit the run and open its log. A client that leaves meanwhile does not undo the submit: the run is stopped."""
        self._record = await _outliving(self._edge.submit(request, self._source, key), self._submitted_late)
        self._cursor = await self._edge.cursor(self._record.run_id, START)
        self._cursor.notify(self._wake)

    def _submitted_late(self, record: RunRecord) -> None:
        self._record = record
        self._stop_run()

    async def whole(self, model: str) -> Response:
        """The answer once the run has ended."""
        body = ChatBody(self._run.run_id, self._run.created_us // 1_000_000, model)
        headers: dict[str, str] | None = None
        while not self._reader.ended:
            for entry in await self._take():
                body.read(entry)
            headers = headers or await self._headers()
        self._reader.close()
        if not body.ending.completed:
            return failed_response(body.ending, headers or {})
        return Response(200, body.body(), headers=headers)

    async def streamed(self, asked: ChatRequest) -> Response | StreamResponse:
        """The stream, once there is something to send; or the status of what failed before that."""
        with_usage = bool(asked.stream_options and asked.stream_options.include_usage)
        chat = ChatStream(self._run.run_id, self._run.created_us // 1_000_000, asked.model, with_usage)
        first = await self._first_output(chat)
        headers = await self._headers()
        if self._reader.ended and not chat.ending.completed and not first:
            self._reader.close()
            return failed_response(chat.ending, headers)
        pieces = [first] if first else [] if self._reader.ended else [COMMENT]
        if self._reader.ended:
            pieces.append(chat.end())
        return StreamResponse(ChatReader(self._reader, chat, pieces, self.abandon), headers=headers)

    async def _first_output(self, chat: ChatStream) -> bytes:
        """The first bytes for the client; empty when the run has ended without any, or after KEEPALIVE_S."""
        deadline = self._clock.seconds() + KEEPALIVE_S
        while not self._reader.ended:
            entries = await self._take(deadline)
            told = b"".join([chat.write(entry) for entry in entries])
            if told or (not entries and self._clock.seconds() >= deadline):
                return told
        return b""

    async def _take(self, deadline: float | None = None) -> list[Any]:
        """What there is to read; with nothing there, waits until there may be something, or for the deadline."""
        self._woken = False
        taken = self._reader.take(TAKE_BYTES)
        entries = await taken if isinstance(taken, Deferred) else taken
        if not entries and not self._reader.ended and not self._woken:
            await self._wait(deadline)
        return entries

    def _wait(self, deadline: float | None) -> Deferred[None]:
        """Fires when the log has told of more, or at the deadline (clock time)."""
        waiting = self._waiting = Deferred()
        if deadline is not None:
            timer = self._clock.callLater(max(0.0, deadline - self._clock.seconds()), self._wake)
            waiting.addBoth(lambda result: (timer.cancel() if timer.active() else None, result)[1])
        return waiting

    def _wake(self) -> None:
        self._woken = True
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.called:
            waiting.callback(None)

    async def _headers(self) -> dict[str, str]:
        try:
            record = await self._edge.run(self._run.run_id)
        except IOPError:         # the answer is worth more than what stands beside it
            record = self._run
        waited_us = max(0, (record.placed_us or record.ended_us or record.created_us) - record.created_us)
        headers = {"x-iop-run-id": record.run_id, "x-iop-queue-ms": str(waited_us // 1000)}
        if record.node_id:
            headers["x-iop-node"] = record.node_id
        return headers

    @property
    def _run(self) -> RunRecord:
        if self._record is None:
            raise IOPError("The run was not submitted.")
        return self._record

    @property
    def _reader(self) -> IRunCursor:
        if self._cursor is None:
            raise IOPError("The run's log was not opened.")
        return self._cursor

    def abandon(self) -> None:
        """Nobody reads any more; the run is stopped unless it has ended."""
        ended = self._cursor is not None and self._cursor.ended
        if self._cursor is not None:
            self._cursor.close()
        if self._record is not None and not ended:
            self._stop_run()

    def _stop_run(self) -> None:
        if self._abandoned:
            return
        self._abandoned = True
        if self._detach_s is None:
            self._cancel(GONE)
        else:
            self._clock.callLater(self._detach_s, self._cancel, f"{GONE} and did not come back in {self._detach_s:g} s")

    def _cancel(self, reason: str) -> None:
        run_id = self._run.run_id
        self._edge.cancel(run_id, self._source, reason).addErrback(
            lambda failure: log.failure("run {run_id} could not be cancelled", failure, run_id=run_id))


class ChatReader:
    """The rest of a chat's stream, for the pump."""

    heartbeat = COMMENT

    def __init__(self, cursor: IRunCursor, chat: ChatStream, first: list[bytes], abandon: Callable[[], object]) -> None:
        self._cursor = cursor
        self._chat = chat
        self._first = first
        self._abandon = abandon
        self.ended = False

    def take(self, limit_bytes: int) -> list[bytes] | Deferred[list[bytes]]:
        if self._first:
            first, self._first = self._first, []
            self.ended = self._cursor.ended
            return first
        taken = self._cursor.take(limit_bytes)
        return taken.addCallback(self._formatted) if isinstance(taken, Deferred) else self._formatted(taken)

    def _formatted(self, entries: list[Any]) -> list[bytes]:
        told = [self._chat.write(entry) for entry in entries]
        self.ended = self._cursor.ended
        if self.ended:
            told.append(self._chat.end())
        return told

    def notify(self, callback: Callable[[], object]) -> None:
        self._cursor.notify(callback)

    def close(self) -> None:
        self._abandon()


def model_json(entry: ModelEntry) -> dict[str, object]:
    return {"id": entry.name, "object": "model", "created": entry.created_us // 1_000_000, "owned_by": entry.adapter}


def failed_response(ending: Ending, headers: dict[str, str]) -> Response:
    """A run that ended badly before anything was sent: its status, and the backend's own body where it sent one."""
    if ending.started:
        headers["x-should-retry"] = "false"
    body = bytes(ending.outcome.upstream_body)
    if ending.outcome.upstream_status >= 400 and _is_json(body):
        return Response(ending.outcome.upstream_status, body, headers=headers)
    return Response(ending.status, json_encode(ending.error_json()),
                    headers=headers | _retry_after(ending.outcome.code))


def _retry_after(code: str) -> dict[str, str]:
    return {"Retry-After": str(RETRY_AFTER_S[code])} if code in RETRY_AFTER_S else {}


def _is_json(body: bytes) -> bool:
    try:
        msgspec.json.decode(body)
    except msgspec.DecodeError:
        return False
    return True


def _detach_s(request: Request) -> float | None:
    """Seconds the run may go on without its client; None: not at all."""
    text = request.header("x-iop-detach")
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and int(text[:9]) <= DETACH_MAX_S):
        raise InvalidRequest(f"x-iop-detach is a whole number of seconds, {DETACH_MAX_S} at most.")
    return float(text)


def _outliving(work: Deferred[Any], late: Callable[[Any], object]) -> Deferred[Any]:
    """A Deferred that can be cancelled without cancelling `work`; `late` then gets its result."""
    given_up: list[bool] = []
    waiting: Deferred[Any] = Deferred(lambda _: given_up.append(True))

    def done(result: Any) -> None:
        late(result) if given_up else waiting.callback(result)

    def failed(failure: Failure) -> None:
        if not given_up:
            waiting.errback(failure)
        elif not failure.check(IOPError):
            log.failure("a submit whose client had left failed", failure)
    work.addCallbacks(done, failed)
    return waiting
