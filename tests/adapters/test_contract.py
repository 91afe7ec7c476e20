"""The one contract that every adapter passes: the same cases, each played on the adapter's own kind of backend."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import pytest_twisted
from twisted.internet.task import Clock
from twisted.plugin import IPlugin
from zope.interface.verify import verifyObject

from iop.adapters import cli, mock, ollama, openai, vllm
from iop.errors import Cancelled, ConfigError, RunTimeout
from iop.interfaces import IAdapter, IAdapterFactory, IAdapterTools, IExecution, IProgram, IRunSink, ISpawner
from iop.proto.run_pb2 import CHANNEL_STDOUT
from iop.requirements import Program, Upstream
from tests.adapters.kit import FakeSpawner, Sink, Started, Tools, target, until
from tests.adapters.upstream import Upstream as Server


class Stage:
    """One adapter with a backend that the test leads through its scenes: asked, answers, speaks, ends."""

    factory: Any
    good: dict[str, Any]

    def __init__(self) -> None:
        self.clock = Clock()
        self.tools = Tools(self.clock, FakeSpawner())
        self.said = 0

    def start(self) -> Started:
        self.run = Started(self.factory, self.tools, target("t", **self.good))
        return self.run

    async def asked(self) -> None: ...
    async def answers(self) -> None: ...
    async def speaks(self) -> None: ...
    async def ends(self) -> None: ...
    async def is_gone(self) -> None: ...


class MockStage(Stage):
    factory = mock.factory
    good = {"script": [{"text": "word{n} ", "delay_s": 1, "repeat": 3}]}

    async def answers(self) -> None:
        self.clock.advance(0)

    async def speaks(self) -> None:
        self.clock.advance(1)

    async def ends(self) -> None:
        for _ in range(3):
            self.clock.advance(1)

    async def is_gone(self) -> None:
        assert not self.clock.getDelayedCalls()


class CliStage(Stage):
    factory = cli.factory
    good = {"argv": ["/bin/echo", "{prompt}"]}

    @property
    def program(self) -> Any:
        return self.tools.spawner.programs[-1]

    async def answers(self) -> None:
        self.program.receiver.program_started(4711)

    async def speaks(self) -> None:
        self.said += 1
        self.program.receiver.output_received(CHANNEL_STDOUT, f"word{self.said} ".encode(), self.said)

    async def ends(self) -> None:
        while self.said < 3:
            await self.speaks()
        self.program.ends(exit_code=0)

    async def is_gone(self) -> None:
        assert "stop" in self.program.calls
        self.program.ends(signal=15, steps=("SIGINT", "SIGTERM"))


class OpenAIStage(Stage):
    factory: Any = openai.factory

    def __init__(self, server: Server) -> None:
        super().__init__()
        self.server = server
        self.good = {"url": server.url}

    async def asked(self) -> None:
        self.call = await until(lambda: self.server.calls and self.server.calls[-1])

    async def answers(self) -> None:
        self.call.stream_head()

    async def speaks(self) -> None:
        self.said += 1
        self.call.words(f"word{self.said} ")

    async def ends(self) -> None:
        while self.said < 3:
            await self.speaks()
        self.call.end()

    async def is_gone(self) -> None:
        await until(lambda: not self.call.open)


class VllmStage(OpenAIStage):
    factory = vllm.factory


class OllamaStage(OpenAIStage):
    factory = ollama.factory

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self.good = {"url": server.url.removesuffix("/v1")}

    async def answers(self) -> None:
        self.call.stream_head("application/x-ndjson")

    async def speaks(self) -> None:
        self.said += 1
        self.line(message={"role": "assistant", "content": f"word{self.said} "}, done=False)

    async def ends(self) -> None:
        while self.said < 3:
            await self.speaks()
        self.line(message={"role": "assistant", "content": ""}, done=True, done_reason="stop")
        self.call.send(b"0\r\n\r\n")

    def line(self, **line: Any) -> None:
        self.call.chunk(json.dumps({"model": "t"} | line).encode() + b"\n")


@pytest.fixture(params=["mock", "cli", "openai", "vllm", "ollama"])
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    if request.param in ("mock", "cli"):
        yield {"mock": MockStage, "cli": CliStage}[request.param]()
        return
    server = request.getfixturevalue("upstream")
    played = {"openai": OpenAIStage, "vllm": VllmStage, "ollama": OllamaStage}[request.param](server)
    yield played
    if hasattr(played, "run"):
        assert not played.clock.getDelayedCalls(), "a deadline is left behind"
        pytest_twisted.blockon(played.run.close())


async def play(stage: Stage, scene: str) -> None:
    """Lead a started run to a scene: asked, started, streaming."""
    await stage.asked()
    if scene in ("started", "streaming"):
        await stage.answers()
        await until(lambda: stage.run.sink.kinds == ["started"])
    if scene == "streaming":
        await stage.speaks()
        await until(lambda: "word1" in stage.run.sink.text())


def test_the_interfaces_are_kept(stage: Stage) -> None:
    assert IPlugin.providedBy(stage.factory)
    verifyObject(IAdapterFactory, stage.factory)
    verifyObject(IAdapterTools, stage.tools)
    verifyObject(ISpawner, stage.tools.spawner)
    verifyObject(IRunSink, Sink())
    run = stage.start()
    verifyObject(IAdapter, run.adapter)
    verifyObject(IExecution, run.execution)
    for program in stage.tools.spawner.programs:
        verifyObject(IProgram, program)
    run.execution.stop(Cancelled())
    for program in stage.tools.spawner.programs:
        program.ends(signal=2)


@pytest_twisted.ensureDeferred
async def test_a_run_starts_speaks_and_completes_once(stage: Stage) -> None:
    run = stage.start()
    await play(stage, "streaming")
    await stage.ends()
    kind, outcome = await run.ended()
    assert (kind, outcome.code) == ("completed", "ok")
    assert run.sink.kinds[0] == "started" and run.sink.kinds.count("started") == 1
    assert run.sink.text() == "word1 word2 word3 "
    started = run.sink.events[0].started
    assert (started.adapter, started.target) == (stage.factory.name, "t") and started.detail
    assert all(event.at_us for event in run.sink.events)
    run.execution.stop(Cancelled())
    run.execution.resumeProducing()
    assert len(run.endings) == 1


@pytest.mark.parametrize("scene", ["at once", "asked", "started", "streaming"])
@pytest.mark.parametrize(("error", "ending"), [(Cancelled(), ("cancelled", "cancelled")),
                                               (RunTimeout(), ("failed", "run_timeout"))])
@pytest_twisted.ensureDeferred
async def test_a_stop_ends_the_run_in_every_phase(stage: Stage, scene: str, error: Any, ending: tuple[str, str]) -> None:
    run = stage.start()
    if scene != "at once":
        await play(stage, scene)
    run.execution.stop(error)
    run.execution.stop(Cancelled("a second stop says nothing new"))
    if scene != "at once" or isinstance(stage, CliStage):
        await stage.is_gone()
    kind, outcome = await run.ended()
    assert (kind, outcome.code) == ending
    assert len(run.endings) == 1


@pytest_twisted.ensureDeferred
async def test_a_paused_run_emits_nothing_and_loses_nothing(stage: Stage) -> None:
    run = stage.start()
    await play(stage, "streaming")
    run.execution.pauseProducing()
    before = len(run.sink.events)
    await stage.speaks()
    await stage.ends()
    await until_quiet(stage)
    assert len(run.sink.events) == before and run.ending is None
    run.execution.resumeProducing()
    if isinstance(stage, MockStage):
        await stage.ends()
    assert (await run.ended())[0] == "completed"
    assert run.sink.text() == "word1 word2 word3 "


@pytest_twisted.ensureDeferred
async def test_a_sink_may_pause_the_run_from_within_an_emit(stage: Stage) -> None:
    run = stage.start()
    run.sink.pause_at = 1
    await stage.asked()
    await stage.answers()
    await until(lambda: run.sink.kinds == ["started"])
    await stage.speaks()
    await stage.ends()
    await until_quiet(stage)
    assert run.sink.kinds == ["started"]
    run.execution.resumeProducing()
    if isinstance(stage, MockStage):
        await stage.ends()
    await run.ended()
    assert run.sink.text() == "word1 word2 word3 "


@pytest_twisted.ensureDeferred
async def test_a_paused_run_can_be_stopped(stage: Stage) -> None:
    run = stage.start()
    await play(stage, "streaming")
    run.execution.pauseProducing()
    await stage.speaks()
    await until_quiet(stage)
    run.execution.stop(Cancelled())
    await stage.is_gone()
    assert (await run.ended())[0] == "cancelled"


async def until_quiet(stage: Stage) -> None:
    """Let what is under way on loopback arrive, or not."""
    from twisted.internet import reactor
    from twisted.internet.task import deferLater
    if isinstance(stage, OpenAIStage):
        await deferLater(reactor, 0.05)


@pytest_twisted.ensureDeferred
async def test_the_policy_is_asked_before_anything_is_started(stage: Stage) -> None:
    if isinstance(stage, MockStage):
        pytest.skip("a script needs nothing of its machine")
    stage.tools.denied = True
    run = stage.start()
    kind, outcome = await run.ended()
    assert (kind, outcome.code) == ("failed", "policy_denied")
    assert not run.sink.events and not stage.tools.spawner.programs
    wanted = stage.tools.required[0]
    assert wanted == (Program(("/bin/echo", "{prompt}")) if isinstance(stage, CliStage) else Upstream(stage.good["url"]))


def test_a_wrong_setting_is_named_with_what_is_allowed(stage: Stage) -> None:
    with pytest.raises(ConfigError) as caught:
        stage.factory.settings(target("t", **stage.good, wrong_key=1))
    assert "wrong_key" in caught.value.message and "allowed here: " in caught.value.message
    for name in stage.good:
        assert name in caught.value.message
        with pytest.raises(ConfigError) as caught_type:
            stage.factory.settings(target("t", **(stage.good | {name: 17})))
        assert name in caught_type.value.message
    with pytest.raises(ConfigError):
        stage.factory.settings(type(target("t"))(name="t", settings=b"[1]"))
