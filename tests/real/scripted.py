"""A model server whose answers a test writes: chat/completions on the standard library, and nothing else of the APIs.

::

    with Scripted(run_command("echo hello-tool", "It printed hello-tool.")) as backend:
        ... "--openai", f"fake={backend.url}" ...
    backend.asked            # the bodies of the chats, in order

A play takes the body of a chat and says what the model answers. What is not chat/completions or models is a 404, so that
everything else has to be translated.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SHELLS = ("Bash", "bash", "shell", "exec_command", "shell_command", "local_shell", "run_shell_command", "execute_command")
USAGE = {"prompt_tokens": 11, "completion_tokens": 6, "total_tokens": 17, "prompt_tokens_details": {"cached_tokens": 3}}


@dataclass
class Call:
    """A tool call that the model makes."""

    name: str
    arguments: dict[str, Any]


@dataclass
class Reply:
    """One answer of the model: its thoughts, its text, then its calls. `status` other than 200: a refusal with `text`."""

    text: str = ""
    reasoning: str = ""
    calls: list[Call] = field(default_factory=list)
    finish_reason: str = ""
    status: int = 200
    pause_s: float = 0.0             # between two chunks
    cut: bool = False                # the connection breaks behind the text


Play = Callable[[dict[str, Any]], Reply]


def say(text: str, **how: Any) -> Play:
    """Always the same answer."""
    return lambda body: Reply(text, **how)


def run_command(command: str, then: str, reasoning: str = "") -> Play:
    """Have the client's shell tool run a command; once its result is there, say `then`."""
    def play(body: dict[str, Any]) -> Reply:
        tool = next((tool["function"] for tool in body.get("tools") or () if tool["function"]["name"] in SHELLS), None)
        if tool is None or any(message.get("role") == "tool" for message in body["messages"]):
            return Reply(then)
        return Reply("", reasoning, [Call(tool["name"], arguments_for(tool.get("parameters") or {}, command))])
    return play


def call_tool(name: str, arguments: dict[str, Any], then: str) -> Play:
    """The same with a tool of a known name, when it is offered."""
    def play(body: dict[str, Any]) -> Reply:
        offered = [tool["function"]["name"] for tool in body.get("tools") or ()]
        if name not in offered or any(message.get("role") == "tool" for message in body["messages"]):
            return Reply(then)
        return Reply(calls=[Call(name, arguments)])
    return play


def arguments_for(schema: dict[str, Any], command: str) -> dict[str, Any]:
    """Arguments that a shell tool of this schema takes: the command, and something for what it needs besides."""
    properties: dict[str, Any] = schema.get("properties") or {}
    name = next((name for name in ("command", "cmd") if name in properties), "command")
    array = properties.get(name, {}).get("type") == "array"
    found: dict[str, Any] = {name: ["bash", "-lc", command] if array else command}
    fill = {"string": "Run a command", "boolean": False, "integer": 60_000, "number": 60_000, "array": [], "object": {}}
    return {needed: fill.get(properties.get(needed, {}).get("type"), "") for needed in schema.get("required") or ()} | found


class Scripted:
    """The server, on a free port of loopback while the context is open. `delay_s`: before each answer begins."""

    def __init__(self, play: Play, model: str = "fake", delay_s: float = 0.0) -> None:
        self.play, self.model, self.delay_s = play, model, delay_s
        self.asked: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self._server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"scripted": self}))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> Scripted:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that leaves is no error of the test."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    scripted: Scripted

    def log_message(self, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        if self.path != "/v1/models":
            self._json(404, {"error": {"message": "not found", "type": "not_found_error", "code": 404}})
            return
        entry = {"id": self.scripted.model, "object": "model", "created": 0, "owned_by": "test", "max_model_len": 131072}
        self._json(200, {"object": "list", "data": [entry]})

    def do_POST(self) -> None:
        self.scripted.paths.append(self.path)
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path != "/v1/chat/completions":
            self._json(404, {"error": {"message": "not found", "type": "not_found_error", "code": 404}})
            return
        body = json.loads(data)
        self.scripted.asked.append(body)
        reply = self.scripted.play(body)
        time.sleep(self.scripted.delay_s)
        if reply.status != 200:
            self._json(reply.status, {"error": {"message": reply.text, "type": "test_error", "param": None, "code": None}})
        elif body.get("stream"):
            self._stream(reply, bool((body.get("stream_options") or {}).get("include_usage")))
        else:
            self._json(200, whole(reply, self.scripted.model))

    def _json(self, status: int, value: object) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, reply: Reply, with_usage: bool) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            for chunk in chunks(reply, self.scripted.model, with_usage):
                self._write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
                time.sleep(reply.pause_s)
            if reply.cut:
                self.close_connection = True
                return
            self._write(b"data: [DONE]\n\n")
            self.wfile.write(b"0\r\n\r\n")
        except OSError:              # the client has left
            self.close_connection = True

    def _write(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
        self.wfile.flush()


def _finish(reply: Reply) -> str:
    return reply.finish_reason or ("tool_calls" if reply.calls else "stop")


def whole(reply: Reply, model: str) -> dict[str, Any]:
    """A reply as one chat.completion."""
    message: dict[str, Any] = {"role": "assistant", "content": reply.text or None}
    if reply.reasoning:
        message["reasoning_content"] = reply.reasoning
    if reply.calls:
        message["tool_calls"] = [{"id": f"call_{number}", "type": "function", "function": {
            "name": call.name, "arguments": json.dumps(call.arguments)}} for number, call in enumerate(reply.calls)]
    return {"id": "chatcmpl-test", "object": "chat.completion", "created": 1_790_000_000, "model": model, "usage": USAGE,
            "choices": [{"index": 0, "message": message, "finish_reason": _finish(reply)}]}


def chunks(reply: Reply, model: str, with_usage: bool) -> Iterator[dict[str, Any]]:
    """A reply as chat.completion.chunks: a word a chunk, the arguments of a call in two."""
    head = {"id": "chatcmpl-test", "object": "chat.completion.chunk", "created": 1_790_000_000, "model": model}
    for delta in _deltas(reply):
        yield {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    if reply.cut:
        return
    yield {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": _finish(reply)}]}
    if with_usage:
        yield {**head, "choices": [], "usage": USAGE}


def _deltas(reply: Reply) -> Iterator[dict[str, Any]]:
    yield {"role": "assistant", "content": ""}
    for word in reply.reasoning.split(" ") if reply.reasoning else ():
        yield {"reasoning_content": word + " "}
    for number, word in enumerate(reply.text.split(" ") if reply.text else ()):
        yield {"content": (" " if number else "") + word}
    for index, call in enumerate(reply.calls):
        text = json.dumps(call.arguments)
        half = len(text) // 2
        yield {"tool_calls": [{"index": index, "id": f"call_{index}", "type": "function",
                               "function": {"name": call.name, "arguments": ""}}]}
        yield {"tool_calls": [{"index": index, "function": {"arguments": text[:half]}}]}
        yield {"tool_calls": [{"index": index, "function": {"arguments": text[half:]}}]}
