"""A backend whose 200 is JSON, but no answer: each face tells a failure, and none an empty answer that has ended well."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.e2e.up import Up

HI = [{"role": "user", "content": "hi"}]
FACES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": HI}, "/v1/completions": {"prompt": "hi"}, "/v1/responses": {"input": "hi"},
    "/v1/messages": {"messages": HI, "max_tokens": 9}, "/api/chat": {"messages": HI}, "/api/generate": {"prompt": "hi"}}


class Handler(BaseHTTPRequestHandler):
    """Says the same whatever it is asked; it is well."""

    says = b"[]"

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self._answer(b'{"data":[{"id":"wrong"}]}')

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self._answer(self.says)


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    started = Up(tmp_path_factory.mktemp("wrong") / "state", f"--openai=wrong=http://127.0.0.1:{server.server_port}/v1")
    yield started.wait_ready()
    assert started.stop() == 0, started.words()
    server.shutdown()


def ask(up: Up, path: str, body: dict[str, Any]) -> tuple[int, str]:
    request = urllib.request.Request(up.ready["http"] + path, json.dumps(body | {"model": "wrong"}).encode(), {
        "Authorization": f"Bearer {up.ready['api_key']}", "Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=30) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@pytest.mark.parametrize("says", [b"[]", b"3", b'{"choices":3}', b'{"choices":[{"index":0,"finish_reason":"stop"}]}'])
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("path", FACES)
def test_no_face_invents_an_answer(up: Up, monkeypatch: pytest.MonkeyPatch, path: str, stream: bool, says: bytes) -> None:
    monkeypatch.setattr(Handler, "says", says)
    status, told = ask(up, path, FACES[path] | {"stream": stream})
    assert status == 502 and "The backend" in told and '"error"' in told, told
    assert "end_turn" not in told and '"done"' not in told and '"completed"' not in told
