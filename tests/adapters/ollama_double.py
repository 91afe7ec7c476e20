"""A stand-in for Ollama (no package ships the real server): its native API over twisted.web, NDJSON as it streams.

Held to the official Python client in test_ollama.py. The model `tiny` repeats the last user message word by word;
a prompt with the word "break" ends in an error line, "think" makes it think first, "forever" never ends, and offered
tools are called.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import LoopingCall
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request, Site

CREATED = "2026-12-01T09:50:41.123456789Z"
DETAILS = {"parent_model": "", "format": "gguf", "family": "llama", "families": ["llama"], "parameter_size": "1M",
           "quantization_level": "F16"}
ENTRY = {"name": "tiny:latest", "model": "tiny:latest", "modified_at": CREATED, "size": 484096, "digest": "0" * 64,
         "details": DETAILS}
NUMBERS = {"total_duration": 5_000_000, "load_duration": 1_000_000, "prompt_eval_count": 7, "prompt_eval_duration": 2_000_000,
           "eval_count": 4, "eval_duration": 2_000_000}


class _Answer(Resource):
    """One path. `lines` gives the answer's JSON values; the last of them is the whole answer without streaming."""

    isLeaf = True

    def __init__(self, double: OllamaDouble, method: str) -> None:
        super().__init__()
        self._double = double
        self._method = method

    def render_GET(self, request: Request) -> bytes:
        loaded = [ENTRY | {"name": name, "model": name} for name in self._double.loaded]
        return self._json(request, {"tags": {"models": [ENTRY]}, "version": {"version": "0.12.0-double"},
                                    "ps": {"models": loaded}}.get(self._method), 405)

    def render_POST(self, request: Request) -> Any:
        body = json.loads(request.content.read())
        self._double.bodies.append(body)
        if self._method == "pull":
            return self._pull(request, body["model"])
        if body.get("model") not in ("tiny", "tiny:latest"):
            return self._json(request, None, 404, f"model '{body.get('model')}' not found")
        if self._method == "show":
            return self._json(request, {"modelfile": "", "parameters": "", "template": "", "details": DETAILS,
                                        "model_info": {"general.architecture": "llama"}, "capabilities": ["completion"]}
                              | self._double.shown, 0)
        if self._method == "generate" and "prompt" not in body:
            self._double.loaded[:] = [] if body.get("keep_alive") == 0 else ["tiny:latest"]
            return self._json(request, {"model": "tiny", "created_at": CREATED, "response": "", "done": True,
                                        "done_reason": "unload" if body.get("keep_alive") == 0 else "load"}, 0)
        if self._method == "embed":
            texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
            return self._json(request, {"model": "tiny", "embeddings": [[float(len(text)), 0.5] for text in texts],
                                        "total_duration": 1, "load_duration": 1, "prompt_eval_count": 3}, 0)
        if not body.get("stream", True):
            return self._json(request, self._whole(body), 0)
        request.setHeader(b"Content-Type", b"application/x-ndjson")
        lines = self._lines(body)
        loop = LoopingCall(self._next, request, lines)
        request.notifyFinish().addBoth(lambda _: loop.running and loop.stop())
        loop.start(0.001)
        return NOT_DONE_YET

    def _next(self, request: Request, lines: Iterator[dict[str, Any]]) -> None:
        line = next(lines, None)
        if line is not None:
            request.write(json.dumps(line).encode() + b"\n")
        elif not request.finished:
            request.finish()

    def _json(self, request: Request, value: Any, status: int, error: str = "method not allowed") -> bytes:
        request.setHeader(b"Content-Type", b"application/json; charset=utf-8")
        if value is None:
            request.setResponseCode(status)
            value = {"error": error}
        return json.dumps(value).encode()

    def _lines(self, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        prompt = body["prompt"] if self._method == "generate" else _last(body["messages"])
        words = prompt.split()
        if "think" in words:
            yield self._line(thinking="hm")
        if body.get("tools"):
            yield self._line(tool_calls=[{"function": {"name": body["tools"][0]["function"]["name"],
                                                       "arguments": {"city": "Oslo"}}}])
        else:
            for index, word in enumerate(words):
                if word == "break":
                    yield {"error": "the runner ended unexpectedly"}
                    return
                yield self._line(content=word if index == 0 else " " + word)
            while "forever" in words:
                yield self._line(content=" and")
        yield self._line(content="") | {"done": True, "done_reason": "stop"} | NUMBERS

    def _pull(self, request: Request, model: str) -> Any:
        """As Ollama's docs/api.md has it; `hold` is a model whose second half never comes."""
        lines: list[dict[str, Any]] = [{"status": "pulling manifest"}]
        if model == "nothing":
            lines.append({"error": "pull model manifest: file does not exist"})
        else:
            lines += [{"status": "pulling 0123456789ab", "digest": "sha256:0123", "total": 200, "completed": done}
                      for done in ((50,) if model == "hold" else (50, 100, 200))]
            lines += [] if model == "hold" else [{"status": "verifying sha256 digest"}, {"status": "success"}]
        request.setHeader(b"Content-Type", b"application/x-ndjson")
        for line in lines:
            request.write(json.dumps(line).encode() + b"\n")
        request.notifyFinish().addBoth(lambda _: self._double.given_up.append(model))
        if model != "hold":
            request.finish()
        return NOT_DONE_YET

    def _line(self, **message: Any) -> dict[str, Any]:
        line: dict[str, Any] = {"model": "tiny", "created_at": CREATED, "done": False}
        if self._method == "generate":
            return line | {"response": message.pop("content", "")} | message
        return line | {"message": {"role": "assistant", "content": ""} | message}

    def _whole(self, body: dict[str, Any]) -> dict[str, Any]:
        lines = list(self._lines(body))
        if self._method == "generate":
            return lines[-1] | {"response": "".join(line["response"] for line in lines)}
        message: dict[str, Any] = {"role": "assistant", "content": "".join(line["message"]["content"] for line in lines)}
        for line in lines:
            message |= {key: value for key, value in line["message"].items() if key not in ("role", "content")}
        return lines[-1] | {"message": message}


def _last(messages: list[dict[str, Any]]) -> str:
    return next(message["content"] for message in reversed(messages) if message["role"] in ("user", "tool"))


class OllamaDouble:
    """Listens on a free port of loopback; keeps the bodies that it was asked with."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.loaded: list[str] = []                # what /api/ps tells
        self.given_up: list[str] = []              # pulls that are over
        self.shown: dict[str, Any] = {}            # what /api/show tells beside the rest
        root, api = Resource(), Resource()
        root.putChild(b"api", api)
        for method in ("tags", "version", "ps", "show", "chat", "generate", "embed", "pull"):
            api.putChild(method.encode(), _Answer(self, method))
        self._site = Site(root)
        self._site.noisy = False
        self._port = reactor.listenTCP(0, self._site, interface="127.0.0.1")
        self.url = f"http://127.0.0.1:{self._port.getHost().port}"

    def stop(self) -> Deferred[Any]:
        return maybeDeferred(self._port.stopListening)
