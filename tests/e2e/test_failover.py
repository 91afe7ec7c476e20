"""Two nodes offer a model; the backend of one is healthy and refuses every request. The client notices nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import openai
import pytest

from tests.e2e.up import eventually

ANSWER = {"id": "c", "object": "chat.completion", "created": 1, "model": "big", "choices": [
    {"index": 0, "message": {"role": "assistant", "content": "Hello"}, "finish_reason": "stop"}]}


ROLE = {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}


class Backend:
    """Lists its model; answers chats with one status and body, and streams not at all: it says who speaks, and is gone."""

    def __init__(self, status: int, answer: object) -> None:
        self.asked = 0
        backend = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                pass

            def handle_one_request(self) -> None:
                try:
                    super().handle_one_request()
                except ConnectionError:          # a connection that was kept, and is not needed any more
                    self.close_connection = True

            def do_GET(self) -> None:
                self._answer(200, {"data": [{"id": "big"}]})

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                backend.asked += 1
                if body.get("stream") and status != 200:
                    self.close_connection = True
                    self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 9999\r\n\r\n"
                                     b"data: " + json.dumps(ROLE).encode() + b"\n\n")
                else:
                    self._answer(status, answer)

            def _answer(self, code: int, value: object) -> None:
                body = json.dumps(value).encode()
                self.send_response(code)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def backends() -> Iterator[tuple[Backend, Backend]]:
    found = Backend(500, {"error": {"message": "Unsupported head_dim", "code": 500}}), Backend(200, ANSWER)
    yield found
    for backend in found:
        backend.stop()


def test_a_client_notices_nothing_of_a_broken_backend_while_another_node_has_the_model(bring_up, backends, tmp_path):
    broken, good = backends
    up = bring_up(f"--openai=big={broken.url}")
    client = openai.OpenAI(base_url=up.ready["http"] + "/v1", api_key=up.ready["api_key"], max_retries=0)
    with pytest.raises(openai.InternalServerError, match="head_dim"):
        client.chat.completions.create(model="big", messages=[{"role": "user", "content": "hi"}])
    home = tmp_path / "home"
    home.mkdir()
    subprocess.run(["sh"], input=up.iop("node-config", "laptop").stdout, text=True, check=True,
                   env={"HOME": str(home), "PATH": os.environ["PATH"]})
    node = subprocess.Popen([sys.executable, "-P", "-m", "iop.tap", "--nodaemon", "--pidfile=", "iop-node", "-c",
                             str(home / "iop-node" / "node.yaml")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        file = up.state / "edge" / "edge.yaml"
        target = f"openai: {{targets: {{big: {{url: '{good.url}'}}}}}}"
        file.write_text(file.read_text() + f"- id: laptop\n  adapters: {{{target}}}\n")
        up.process.send_signal(signal.SIGHUP)

        def laptop_is_ready() -> bool:
            nodes = {one["node_id"]: one for one in json.loads(up.iop("nodes", "--json").stdout)}
            return any(target["ready"] for target in nodes.get("laptop", {}).get("targets", ()))

        eventually(laptop_is_ready, "the other node offers the model")
        for _ in range(4):
            answer = client.chat.completions.create(model="big", messages=[{"role": "user", "content": "hi"}])
            assert answer.choices[0].message.content == "Hello"
        for _ in range(2):
            chunks = client.chat.completions.create(model="big", stream=True, messages=[{"role": "user", "content": "hi"}])
            assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "Hello"
        assert broken.asked > 1, "the broken one was tried again"
        runs = [json.loads(line) for line in up.iop("runs", "--json").stdout.splitlines()]
        assert any(run["attempt"] == 2 and run["state"] == "completed" and run["node_id"] == "laptop" for run in runs)
    finally:
        node.terminate()
        node.wait(40)
