"""Earlier responses, read from the runs they are: which run it is, whose, and what it said."""

from __future__ import annotations

from typing import Any

from iop.edge.models.foreign_json import read_object
from iop.edge.models.reader import WHOLE_BYTES, take, too_large
from iop.edge.models.response_object import PREFIX
from iop.edge.models.responses import ResponseBody
from iop.errors import InvalidRequest, NotFound
from iop.interfaces import IEdgeService, IRunCursor
from iop.modelapis import RESPONSES
from iop.proto import run_pb2
from iop.records import RunRecord
from iop.runs import START, is_run_id


class PreviousNotFound(InvalidRequest):
    """There is no response with the id in `previous_response_id`, or its answer is not whole."""

    code = "previous_response_not_found"


class Stored:
    """One response that its client may see. `asked` is the request's body, `model` the name it asked for."""

    def __init__(self, record: RunRecord) -> None:
        run = run_pb2.RunRequest.FromString(record.request)
        self.record = record
        self.api = run.api
        self.asked: dict[str, Any] = (read_object(run.body) or {}) if run.api == RESPONSES else {}

    @property
    def model(self) -> str:
        return str(self.asked.get("model") or self.record.target)

    @property
    def is_kept(self) -> bool:
        """Whether its client wants it to be found again."""
        return self.asked.get("store") is not False and not self.record.forgotten


class ResponseStore:
    """See the module. What is another's is told like what is not there, also to an operator's key."""

    def __init__(self, edge: IEdgeService) -> None:
        self._edge = edge

    async def find(self, name: str, principal: str, *, kept: bool = True) -> Stored:
        """By `resp_RUN`, or by the bare id of the run; with `kept` False also one that was not to be stored.
        Raises NotFound."""
        run_id = name.removeprefix(PREFIX)
        missing = NotFound(f"There is no response {name[:80]!r}.")
        if not is_run_id(run_id):
            raise missing
        try:
            stored = Stored(await self._edge.run(run_id))
        except NotFound:
            raise missing from None
        if stored.api != RESPONSES or stored.record.principal != principal or (kept and not stored.is_kept):
            raise missing
        return stored

    async def cursor(self, stored: Stored) -> IRunCursor:
        cursor: IRunCursor = await self._edge.cursor(stored.record.run_id, START)
        return cursor

    async def read(self, stored: Stored) -> ResponseBody:
        """All that a run which has ended has said. Raises OutputLimit for an answer that is too long to be told at once."""
        body = ResponseBody(stored.record, stored.asked, stored.model)
        cursor = await self.cursor(stored)
        try:
            while not cursor.ended:
                for entry in await take(cursor):
                    body.read(entry)
                if body.size > WHOLE_BYTES:
                    raise too_large("Fetch it with `stream=true`.")
        finally:
            cursor.close()
        return body

    async def continued(self, name: str, principal: str, given: Any) -> list[Any]:
        """The input that goes on from an earlier response: its own input, its output, then what is `given` now.

        Raises PreviousNotFound. One step back is enough: an earlier one has taken its own predecessor in by the same way.
        """
        try:
            stored = await self.find(name, principal)
        except NotFound as error:
            raise PreviousNotFound(error.message) from None
        if stored.record.state != "completed":
            raise PreviousNotFound(f"The response {name[:80]!r} cannot be continued: it is {stored.record.state}.")
        output = (await self.read(stored)).output()
        return [*items_of(stored.asked.get("input")), *output, *items_of(given)]


def items_of(given: Any) -> list[Any]:
    """An input as a list of items."""
    if isinstance(given, list):
        return given
    if given is None:
        return []
    return [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": given}]}]
