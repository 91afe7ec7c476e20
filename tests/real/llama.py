"""A pytest plugin: real llama.cpp servers (the wheel xllamacpp) with tiny models of known text, for the whole session."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

TOOLS = Path(__file__).resolve().parents[2] / "tools"
READY_S = 60


@dataclass
class LlamaServer:
    """A server under way. `url` is its root; the API is under /v1."""

    model: str
    url: str
    process: subprocess.Popen[bytes]

    @property
    def api(self) -> str:
        return f"{self.url}/v1"

    def get(self, path: str) -> Any:
        """JSON of a GET; blocks, so not for the reactor's thread while it serves."""
        with urllib.request.urlopen(self.url + path, timeout=5) as reply:
            return json.load(reply)

    def post(self, path: str, body: bytes) -> Any:
        """JSON of a POST; blocks as well."""
        request = urllib.request.Request(self.api + path, body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=20) as reply:
            return json.load(reply)

    def busy_slots(self) -> int:
        return sum(slot["is_processing"] for slot in self.get("/slots"))


@pytest.fixture(scope="session")
def tiny_models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """{name: path} of the models hello, count, loop and tool."""
    for needed in ("xllamacpp", "gguf"):
        if importlib.util.find_spec(needed) is None:
            pytest.skip(f"{needed} is not installed; `pip install -e .[test]` brings it")
    folder = tmp_path_factory.mktemp("models")
    subprocess.run([sys.executable, TOOLS / "tiny_gguf.py", folder], check=True, stdout=subprocess.DEVNULL)
    return {path.stem: str(path) for path in folder.glob("*.gguf")}


@pytest.fixture(scope="session")
def llama_server(tiny_models: dict[str, str],
                 tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., LlamaServer]]:
    """`llama_server("loop", ctx=4096, parallel=2)`: a running server; the same arguments give the same one."""
    running: dict[tuple[Any, ...], LlamaServer] = {}

    def start(model: str = "hello", *, ctx: int = 8192, parallel: int = 2) -> LlamaServer:
        key = (model, ctx, parallel)
        if key not in running:
            log = tmp_path_factory.mktemp("llama") / f"{model}.log"
            running[key] = _started(model, tiny_models[model], ctx, parallel, log)
        return running[key]

    yield start
    for server in running.values():
        server.process.terminate()
    for server in running.values():
        server.process.wait(10)


def _started(model: str, path: str, ctx: int, parallel: int, log: Path) -> LlamaServer:
    command = [sys.executable, str(TOOLS / "llama_server.py"), "--model", path, "--alias", model, "--port", "0",
               "--ctx", str(ctx), "--parallel", str(parallel), "--threads", "1"]
    with log.open("wb") as errors:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors)
    line = process.stdout.readline() if process.stdout else b""
    if not line:
        raise RuntimeError(f"llama.cpp's server did not start:\n{log.read_text()[-2000:]}")
    return LlamaServer(model, json.loads(line)["listening"], process)
