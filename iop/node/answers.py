"""NodeCommandRequest to NodeCommandResponse, by way of the node's command table."""

from __future__ import annotations

from typing import Any

import msgspec
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.error import TimeoutError as TimedOut
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from iop.errors import CommandTimeout, InvalidRequest, IOPError
from iop.proto.node_pb2 import NodeCommandRequest, NodeCommandResponse

log = Logger()

LONGEST_S = 300.0


def answer_command(table: Any, node: Any, request: NodeCommandRequest, clock: IReactorTime) -> Deferred[NodeCommandResponse]:
    """Carry it out; the Deferred never fails. `node` is the context of the commands."""
    asked = maybeDeferred(_call, table, node, request)
    asked.addTimeout(min(request.timeout_s or LONGEST_S, LONGEST_S), clock)
    return asked.addCallbacks(_done, _failed, callbackArgs=(request,), errbackArgs=(request,)).addErrback(_failed, request)


def _call(table: Any, node: Any, request: NodeCommandRequest) -> Any:
    if not request.name:
        return table.run_line(request.line, node)
    try:
        arguments = msgspec.json.decode(request.arguments or b"{}", type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError):
        raise InvalidRequest("The command's arguments are not a JSON object.") from None
    return table.call(table.bind(request.name, arguments), node)


def _done(result: Any, request: NodeCommandRequest) -> NodeCommandResponse:
    return NodeCommandResponse(command_id=request.command_id, ok=True, result=msgspec.json.encode(result))


def _failed(failure: Failure, request: NodeCommandRequest) -> NodeCommandResponse:
    error = failure.value
    if isinstance(error, TimedOut):
        error = CommandTimeout()
    if not isinstance(error, IOPError):
        log.failure("the command {command_id} failed", failure, command_id=request.command_id)
        error = IOPError("The command failed inside the node; its log has the details.")
    return NodeCommandResponse(command_id=request.command_id, code=error.code, message=error.sentence)
