"""How a run is asked of an OpenAI-compatible backend. Pure.

A model API's body travels whole: only `model` becomes the backend's own name, and a chat is asked to stream and to tell its
usage.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import msgspec

from iop import forms
from iop.adapters.wire.asked import JSON
from iop.errors import InvalidRequest
from iop.modelapis import CHAT, COMPLETIONS, COUNT_TOKENS, MESSAGES, PASSING, RESPONSES
from iop.proto.run_pb2 import RunRequest

CHATS = frozenset((CHAT, COMPLETIONS))
TYPED = frozenset((RESPONSES, MESSAGES))         # their events name themselves
JOINED = CHATS | TYPED                           # those that always stream: docs/adr/0012-joined-answers.md
APIS = JOINED | PASSING | {COUNT_TOKENS}
# What is the edge's own business of a request: it has put the earlier answer into the input, and keeps the run by itself.
_OURS = {RESPONSES: ("previous_response_id", "background")}
_QUERY = re.compile(r"[A-Za-z0-9._~!$&'()*+,;=:@/?%-]{0,2000}")     # RFC 3986, 3.4


class ApiRequest(NamedTuple):
    """What a backend is asked, and whether the run wants a stream. Where only IOP does, `plain` is the body without it."""

    api: str
    body: bytes
    streams: bool
    plain: bytes = b""
    content_type: str = JSON


def request_of(request: RunRequest, model: str, joined: bool = True) -> ApiRequest:
    """Raises InvalidRequest. `joined`: an answer in one piece is made of a stream."""
    kind = request.WhichOneof("input")
    if kind == "body":
        return passed_on(request.api or CHAT, request.body, model, request.content_type, joined)
    if kind == "messages":
        messages: Any = msgspec.Raw(_checked_messages(request.messages))
    elif kind == "prompt":
        messages = [{"role": "user", "content": request.prompt}]
    else:
        raise InvalidRequest("The run has no input; give a prompt, messages or a body.")
    return ApiRequest(CHAT, _streaming({"model": model, "messages": messages}), True)


def passed_on(api: str, body: bytes, model: str, content_type: str = "", joined: bool = True) -> ApiRequest:
    """A body of that API for the backend's `model`. Raises InvalidRequest."""
    if api not in APIS and not _is_path(api):
        raise InvalidRequest(f"{api[:80]!r} is not the path of a model API.")
    if forms.is_form(content_type):
        return ApiRequest(api, _form(body, content_type, model), False, content_type=content_type)
    try:
        fields: dict[str, Any] = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        stream = msgspec.json.decode(fields["stream"]) if "stream" in fields else None
        options = msgspec.json.decode(fields["stream_options"]) if "stream_options" in fields else None
    except (msgspec.DecodeError, RecursionError):
        raise InvalidRequest("The request's body must be a JSON object.") from None
    fields["model"] = model
    for name in _OURS.get(api, ()):
        fields.pop(name, None)
    if api not in JOINED or not isinstance(stream, bool | None):
        return ApiRequest(api, msgspec.json.encode(fields), stream is True)
    plain = b"" if stream else msgspec.json.encode(fields)
    if plain and not joined:
        return ApiRequest(api, plain, False, plain)
    streaming = _streaming(fields, options) if api in CHATS else msgspec.json.encode(fields | {"stream": True})
    return ApiRequest(api, streaming, stream is True, plain)


def _is_path(api: str) -> bool:
    return api.isascii() and all(part.replace("_", "").isalnum() for part in api.split("/"))


def passed_query(request: RunRequest) -> str:
    """What the client's URL says to the backend, with its question mark; or empty. Raises InvalidRequest."""
    if not _QUERY.fullmatch(request.query):
        raise InvalidRequest("The query of the request's URL cannot be passed on.")
    return f"?{request.query}" if request.query else ""


def decoded(body: bytes) -> dict[str, Any]:
    """A body that is to be translated. Raises InvalidRequest."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise InvalidRequest("The request's body must be a JSON object.")
    return value


def _form(body: bytes, content_type: str, model: str) -> bytes:
    """Every other byte of it stays."""
    place = forms.find_field(body, content_type, "model")
    if place is None:
        raise InvalidRequest("The form has no field `model`.")
    return body[:place.start] + model.encode() + body[place.stop:]


def _streaming(fields: dict[str, Any], options: Any = None) -> bytes:
    asked = (options if isinstance(options, dict) else {}) | {"include_usage": True}
    return msgspec.json.encode(fields | {"stream": True, "stream_options": asked})


def _checked_messages(messages: bytes) -> bytes:
    try:
        if isinstance(msgspec.json.decode(messages), list):
            return messages
    except (msgspec.DecodeError, RecursionError):
        pass
    raise InvalidRequest("`messages` must be a JSON list of messages.")
