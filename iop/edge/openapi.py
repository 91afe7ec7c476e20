"""The OpenAPI 3.1 document, made from the route table, so that it cannot tell of other routes than there are."""

from __future__ import annotations

import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

import msgspec

from iop.web.errors import ANTHROPIC, MANAGEMENT, OLLAMA, OPENAI
from iop.web.responses import JSON
from iop.web.route import PUBLIC, Route

Schema = dict[str, Any]

_REF = "#/components/schemas/{name}"
_STRING: Schema = {"type": "string"}
_NULLABLE: Schema = {"type": ["string", "null"]}
_EVENT: Schema = {"type": "object", "properties": {
    "id": {"type": "string", "description": "ATTEMPT.SEQ"}, "attempt": {"type": "integer"}, "seq": {"type": "integer"},
    "at": _NULLABLE, "type": _STRING, "channel": _STRING, "text": _STRING, "bytes_b64": _STRING,
    "first_seq": {"type": "integer", "description": "of a gap: the first event that is missing; `seq` is the last one"},
    "missing": {"type": "integer", "description": "of a gap: how many events"}},
    "required": ["id", "attempt", "seq", "at", "type"]}
_RUN: Schema = {"type": "object", "properties": {
    "run_id": _STRING, "state": {"enum": ["queued", "placed", "running", "disconnected", "completed", "failed", "cancelled",
                                          "unknown"]},
    "adapter": _STRING, "target": _STRING, "alias": {**_NULLABLE, "description": "the name it was asked by"},
    "node_id": _NULLABLE, "placement": {**_NULLABLE, "description": "why it went to its node"},
    "position": {"type": ["integer", "null"], "description": "of one run: its place in the queue now, from 1"},
    "attempt": {"type": "integer"}, "session_id": _NULLABLE,
    "created_at": _NULLABLE, "placed_at": _NULLABLE, "started_at": _NULLABLE, "first_output_at": _NULLABLE,
    "ended_at": _NULLABLE,
    "outcome": {"type": ["object", "null"]}, "usage": {"type": ["object", "null"]}, "totals": {"type": ["object", "null"]},
    "incomplete": {"type": "boolean", "description": "events of it are lost; a `gap` event stands in their place"},
    "source": {"type": "object"}}, "required": ["run_id", "state"]}

_TOTALS: Schema = {"events": {"type": "integer"}, "bytes": {"type": "integer"}, "digest": _STRING}
_VERIFICATION: Schema = {"type": "object", "properties": {
    "run_id": _STRING, "state": _STRING, "whole": {"type": "boolean"},
    "checked": {"enum": ["digest", "numbers"], "description": "numbers: nobody told totals; only the numbering was checked"},
    **_TOTALS, "told": {"type": ["object", "null"], "properties": _TOTALS},
    "gaps": {"type": "array", "items": {"type": "object", "properties": {
        "first": _STRING, "last": _STRING, "missing": {"type": "integer"}}}},
    "late": {"type": "integer", "description": "events that came after the ending, kept apart"},
    "faults": {"type": "array", "items": _STRING}},
    "required": ["run_id", "state", "whole", "checked", "events", "bytes", "digest", "told", "gaps", "late", "faults"]}


_USAGE: Schema = {"type": "object", "properties": {
    "key": {**_STRING, "description": "the owner of the keys"}, "model": {**_STRING, "description": "ADAPTER/TARGET"},
    "node": _STRING, "cost_usd": {"type": "number"}, "runs": {"type": "integer"}, "prompt_tokens": {"type": "integer"},
    "completion_tokens": {"type": "integer"}, "total_tokens": {"type": "integer"}, "cached_tokens": {"type": "integer"}},
    "required": ["runs", "total_tokens"]}


def _listing(name: str, item: Schema, **more: Schema) -> Schema:
    return {"type": "object", "properties": {name: {"type": "array", "items": item}, **more}, "required": [name]}


_OBJECT: Schema = {"type": "object"}
_ANSWERS: dict[str, Schema] = {
    "object": _OBJECT, "result": _OBJECT, "node": _OBJECT, "session": _OBJECT, "health": _OBJECT,
    "chat": _OBJECT, "completion": _OBJECT, "passed": {}, "model_of_apis": _OBJECT, "run": _RUN,
    "submitted": {"type": "object", "properties": {"run_id": _STRING, "state": _STRING},
                  "required": ["run_id", "state"]},
    "verification": _VERIFICATION, "usage": _listing("usage", _USAGE),
    "runs": _listing("runs", _RUN, next=_NULLABLE), "nodes": _listing("nodes", _OBJECT),
    "sessions": _listing("sessions", _OBJECT), "models": _listing("models", _OBJECT),
    "models_of_apis": _listing("data", _OBJECT, object=_STRING, has_more={"type": "boolean"}, first_id=_NULLABLE,
                               last_id=_NULLABLE),
    "text": _STRING,
    "events": _listing("events", _EVENT, next=_STRING, ended={"type": "boolean"}),
    "life": _listing("events", _OBJECT, next={"type": ["integer", "null"]}),
}
_ERROR: Schema = {"type": "object", "required": ["error"], "properties": {"error": {
    "type": "object", "required": ["code", "message", "retryable", "hint"],
    "properties": {"code": _STRING, "message": _STRING, "retryable": {"type": "boolean"}, "hint": _STRING}}}}
_OPENAI_ERROR: Schema = {"type": "object", "required": ["error"], "properties": {"error": {
    "type": "object", "required": ["message", "type", "param", "code"],
    "properties": {"message": _STRING, "type": _STRING, "param": _NULLABLE, "code": _NULLABLE}}}}
_ANTHROPIC_ERROR: Schema = {"type": "object", "required": ["type", "error"], "properties": {
    "type": {"const": "error"}, "error": {"type": "object", "required": ["type", "message"],
                                          "properties": {"type": _STRING, "message": _STRING}}}}
_OLLAMA_ERROR: Schema = {"type": "object", "required": ["error"], "properties": {"error": _STRING}}
_ERRORS = {MANAGEMENT: "Error", OPENAI: "OpenAIError", ANTHROPIC: "AnthropicError", OLLAMA: "OllamaError"}
_STREAMS: dict[str, tuple[str, Schema]] = {OLLAMA: ("application/x-ndjson", _STRING)}
_SENT: tuple[str, Schema] = ("text/event-stream", {       # the schema is that of one event, as tools for 3.1 read it
    "type": "object", "properties": {"event": _STRING, "data": _STRING, "id": _STRING}})


_HEADERS = {"x-request-id": "of the request: the client's own, or a new one"}
_RUN_HEADERS = {
    "x-iop-run-id": "of the run", "x-iop-node": "where it ran", "x-iop-placement": "why there",
    "x-iop-queue-ms": "how long it waited for a node", "x-iop-overhead-ms": "what the edge took to submit it",
    "x-iop-warning": "what was left out on the way to the backend"}


def _ref(name: str) -> Schema:
    return {"$ref": _REF.format(name=name)}


def document(routes: Sequence[Route], version: str) -> Schema:
    """The whole document as JSON-able data."""
    structs = [struct for route in routes for struct in (route.body, route.query) if struct is not None]
    _, components = msgspec.json.schema_components(structs, ref_template=_REF)
    queries = {route.query.__name__ for route in routes if route.query is not None}
    shown = {name: schema for name, schema in components.items() if name not in queries}
    paths: dict[str, Schema] = {}
    for route in routes:
        paths.setdefault(route.path.replace("...}", "}"), {})[route.method.lower()] = _operation(route, components)
    return {
        "openapi": "3.1.0",
        "info": {"title": "IOP edge", "version": version,
                 "description": "Runs on the machines of one edge: the management API and the model API."},
        "paths": paths,
        "components": {
            "schemas": {**shown, "Error": _ERROR, "OpenAIError": _OPENAI_ERROR,
                        "AnthropicError": _ANTHROPIC_ERROR, "OllamaError": _OLLAMA_ERROR},
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"},
                                "key": {"type": "apiKey", "in": "header", "name": "x-api-key"}},
        },
    }


def statuses(route: Route) -> set[int]:
    """Every error status the route can answer with."""
    found = {400, 408, 421, 431, 500, *route.errors}
    if route.scope != PUBLIC:
        found |= {401, 403}
    if route.body is not None:
        found |= {413}
    return found | {405, 415}


def _operation(route: Route, components: dict[str, Schema]) -> Schema:
    operation: Schema = {
        "operationId": re.sub(r"[^a-z0-9]+", "_", f"{route.method} {route.path}".lower()).strip("_"),
        "summary": route.summary,
        "parameters": _parameters(route, components),
        "responses": _responses(route),
        "security": [] if route.scope == PUBLIC else [{"bearer": []}, {"key": []}],
        "x-iop-scope": route.scope,
    }
    if route.body is not None:
        media = "multipart/form-data" if route.form else JSON
        operation["requestBody"] = {"required": True, "x-iop-limit-bytes": route.body_limit, "content": {
            media: {"schema": {"$ref": _REF.format(name=route.body.__name__)}}}}
    return operation


def _parameters(route: Route, components: dict[str, Schema]) -> list[Schema]:
    found: list[Schema] = [{"name": name.removesuffix("..."), "in": "path", "required": True, "schema": _STRING}
                           for name in re.findall(r"\{([^}]+)\}", route.path)]
    if route.query is not None:
        schema = components[route.query.__name__]
        found += [{"name": name, "in": "query", "required": name in schema.get("required", ()), "schema": value}
                  for name, value in schema["properties"].items()]
    return found + [{"name": name, "in": "header", "required": False, "schema": _STRING} for name in route.headers]


def _responses(route: Route) -> Schema:
    content: Schema = {route.media: {"schema": _ANSWERS[route.answer]}} if route.success != 204 else {}
    if route.streams:
        media, schema = _STREAMS.get(route.dialect, _SENT)
        content[media] = {"schema": schema}
    error = _ref(_ERRORS[route.dialect])
    if "anthropic-version" in route.headers and route.dialect != ANTHROPIC:      # who sends it is told in its own dialect
        error = {"anyOf": [error, _ref(_ERRORS[ANTHROPIC])]}
    named = _HEADERS | (_RUN_HEADERS if 502 in route.errors else {})
    told: Schema = {str(route.success): {"description": HTTPStatus(route.success).phrase, "content": content,
                                         "headers": {name: {"description": says, "schema": _STRING}
                                                     for name, says in named.items()}}}
    for status in sorted(statuses(route)):
        told[str(status)] = {"description": HTTPStatus(status).phrase, "content": {
            JSON: {"schema": error}}}
    if 502 in route.errors:      # a backend's refusal passes with its own status
        told["default"] = {"description": "A refusal of the backend", "content": {JSON: {"schema": error}}}
    return told
