"""The node's commands about models: against the stand-in for Ollama, and against servers of the node's own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_twisted
from twisted.internet import reactor
from twisted.internet.defer import Deferred

from iop.adapters import ollama, openai
from iop.config import PolicyConfig
from iop.errors import InvalidRequest, NoSuchTarget, NotFound
from iop.node.commands import node_commands
from iop.node.health import HealthWatch
from iop.node.offers import Offers
from iop.node.policy import Policy, PolicyFacts
from iop.node.tools import Tools
from iop.proto.node_pb2 import AdapterConfig, TargetConfig
from tests.adapters.ollama_double import OllamaDouble


class Node:
    """What these commands need of a NodeService."""

    def __init__(self, folder: Path, *adapters: AdapterConfig) -> None:
        self.clock = reactor
        policy = Policy(PolicyConfig(mode="trusting", trust_edge_commands=True), PolicyFacts(0, 0))
        self.tools = Tools(reactor, None, policy, str(folder), {})
        self.offers = Offers(adapters, self.tools, lambda: [ollama.factory, openai.factory])
        self.offers.judge_again()
        self.health = HealthWatch(reactor, lambda: self.offers.backends, lambda: None)
        self.table = node_commands(lambda: None)

    def ask(self, line: str) -> Deferred[Any]:
        return self.table.run_line(line, self)


def adapter(name: str, **targets: dict[str, Any]) -> AdapterConfig:
    return AdapterConfig(adapter=name, targets=[TargetConfig(name=target, settings=msgspec.json.encode(settings))
                                                for target, settings in targets.items()])


@pytest_twisted.async_yield_fixture
async def double() -> AsyncIterator[OllamaDouble]:
    found = OllamaDouble()
    yield found
    await found.stop()


@pytest_twisted.async_yield_fixture
async def node(double: OllamaDouble, tmp_path: Path) -> AsyncIterator[Node]:
    made = Node(tmp_path, adapter("ollama", tiny={"url": double.url}, gone={"url": double.url, "model": "nope"}),
                adapter("openai", other={"url": "http://127.0.0.1:9/v1"},
                        owned={"serve": {"argv": ["/bin/serve", "{port}"], "name": "s"}}))
    await made.health.check_new()
    yield made
    for backend in made.offers.backends.values():
        await backend.adapter.close()


@pytest_twisted.ensureDeferred
async def test_models_tells_which_there_are_and_which_are_in_memory(node: Node) -> None:
    rows = await node.ask("models")
    found = {row["target"]: row for row in rows}
    assert [found[name]["state"] for name in ("ollama/tiny", "ollama/gone", "openai/owned", "openai/other")] == [
        "cold", "not ready", "cold", "not ready"]
    assert "iop node pull nope" in found["ollama/gone"]["detail"] and "cannot be reached" in found["openai/other"]["detail"]
    assert found["openai/owned"]["server"] == "s" and found["openai/owned"]["detail"] == ""


@pytest_twisted.ensureDeferred
async def test_load_and_unload_move_ollamas_model_into_memory_and_out_of_it(node: Node, double: OllamaDouble) -> None:
    assert (await node.ask("load ollama/tiny")) == {"load": "ollama/tiny", "ended": True, "detail": "", "progress": 0.0}
    assert double.loaded == ["tiny:latest"]
    await node.health.check_new()
    await node.ask("unload tiny")
    assert double.loaded == [] and double.bodies[-1]["keep_alive"] == 0


@pytest_twisted.ensureDeferred
async def test_a_pull_tells_how_far_it_is_each_time_it_is_asked_and_is_one(node: Node, double: OllamaDouble) -> None:
    first = await node.ask("pull hold --wait 0.3")
    assert first == {"pull": "hold", "ended": False, "detail": "pulling 0123456789ab", "progress": 0.25}
    assert (await node.ask("pull hold --wait 0.1")) == first
    assert [body["model"] for body in double.bodies].count("hold") == 1
    assert (await node.ask("pull llama3"))["ended"] is True
    with pytest.raises(NotFound, match="does not exist"):
        await node.ask("pull nothing")
    assert (await node.ask("pull llama3"))["ended"] is True


@pytest_twisted.ensureDeferred
async def test_what_cannot_be_done_is_refused_with_a_reason(node: Node) -> None:
    with pytest.raises(NoSuchTarget, match="ollama/tiny"):
        await node.ask("load nothing")
    with pytest.raises(InvalidRequest, match="serve"):
        await node.ask("load openai/other")
    with pytest.raises(InvalidRequest, match="serve"):
        await node.ask("unload openai/other")
    with pytest.raises(InvalidRequest, match="--wait"):
        await node.ask("pull x --wait 100")
    with pytest.raises(InvalidRequest, match="Ollama"):
        await node.ask("pull x --target openai/owned")
