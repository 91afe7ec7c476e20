"""schemathesis asks every operation of the OpenAPI document of a real edge whatever its schemas allow, and what they do not.

No answer may be a 5xx, have a status, a type or a body that the document does not tell, or come to who has no key.
IOP_CONTRACT_EXAMPLES=500 asks more of each operation (default 4), IOP_CONTRACT_SEED other things.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from iop import yamlfile
from tests.e2e.up import Up, eventually
from tests.real.scripted import Scripted, say

pytestmark = pytest.mark.e2e
ROOT = Path(__file__).parents[2]
CHECKS = ("not_a_server_error", "status_code_conformance", "content_type_conformance", "response_headers_conformance",
          "response_schema_conformance", "unsupported_method", "ignored_auth")
EXAMPLES, SEED = (os.environ.get(f"IOP_CONTRACT_{name}", default) for name, default in (("EXAMPLES", "4"), ("SEED", "1")))
ANSWERED = (      # operations that have to have been asked something that they could answer
    "POST /v1/chat/completions", "POST /v1/completions", "POST /v1/messages", "POST /v1/responses", "POST /api/chat",
    "POST /api/generate", "GET /v1/models", "GET /v1/models/{model}", "GET /v1/responses/{response_id}",
    "PATCH /api/v1/nodes/{node_id}", "GET /api/v1/runs", "GET /api/v1/runs/{run_id}", "POST /api/v1/runs")


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    """One with two nodes, of which the first also offers a model behind a backend that has only chats."""
    with Scripted(say("Hello.")) as backend:
        up = Up(tmp_path / "state", "--nodes", "2").wait_ready()
        file = up.state / "edge" / "edge.yaml"
        value = yamlfile.load(str(file)).value
        value["nodes"][0]["adapters"]["openai"] = {"targets": {"chats": {
            "url": backend.url, "model": "fake", "aliases": ["chats"]}}}
        file.write_text(yamlfile.dump(value))
        os.kill(up.ready["edge_pid"], signal.SIGHUP)
        eventually(lambda: "chats" in str(up.client.get("/v1/models")), "the node offers it")
        yield up
        assert up.stop() == 0


def test_schemathesis_finds_no_fault_of_ours(up: Up, tmp_path: Path) -> None:
    runs = [up.run_id("echo", prompt) for prompt in ("one", "two")]
    responses = [up.client.post("/v1/responses", {"model": "echo", "input": "hi"})["id"] for _ in range(3)]
    tally = tmp_path / "tally.json"
    done = subprocess.run(
        [Path(sys.executable).parent / "schemathesis", "run", up.ready["http"] + "/api/v1/openapi.json",
         "--header", f"Authorization: Bearer {up.ready['api_key']}", "--checks", ",".join(CHECKS),
         "--phases", "coverage,fuzzing", "--max-examples", EXAMPLES, "--seed", SEED, "--continue-on-failure",
         "--request-timeout", "30", "--generation-database", "none", "--warnings", "off", "--no-color"],
        cwd=tmp_path, capture_output=True, text=True, env=os.environ | {
            "PYTHONPATH": str(ROOT), "SCHEMATHESIS_HOOKS": "tests.contract.hooks", "IOP_CONTRACT_RUNS": ",".join(runs),
            "IOP_CONTRACT_RESPONSES": ",".join(responses), "IOP_CONTRACT_TALLY": str(tally),
            "IOP_CONTRACT_SEED": SEED})
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{up.words()}"
    told = json.loads(tally.read_text())
    assert not {name: told.get(name) for name in ANSWERED if not any(status < "300" for status in told.get(name, ()))}
    assert "Traceback" not in up.words(), up.words()
