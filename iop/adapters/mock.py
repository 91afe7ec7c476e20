"""A backend that plays a script, on the given clock: for trying IOP without any model or program."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta
from twisted.internet.defer import Deferred, succeed
from twisted.plugin import IPlugin
from zope.interface import implementer

from iop import events
from iop.adapters import settings as checks
from iop.adapters.argv import prompt_of
from iop.adapters.executions import Execution, refused
from iop.adapters.settings import Settings
from iop.errors import IOPError
from iop.events import CHANNELS
from iop.interfaces import IAdapter, IAdapterFactory, IAdapterTools, IRunSink
from iop.proto.node_pb2 import TargetConfig
from iop.proto.run_pb2 import Outcome
from iop.runs import ExecutionSpec


class Step(Settings):
    """Wait, then say `text`; `repeat` times. {n} in the text is the count of what was said, from 1."""

    text: str = ""
    delay_s: Annotated[float, Meta(ge=0, le=86_400)] = 0.0
    channel: Literal["text", "reasoning", "stdout", "stderr"] = "text"
    repeat: Annotated[int, Meta(ge=1, le=10_000_000)] = 1


class MockSettings(Settings):
    """`echo` says the prompt first; `fail` is the code of the failure that the script ends in."""

    script: list[Step] = []
    echo: bool = False
    fail: Annotated[str, Meta(pattern=r"^[a-z_]{0,64}$")] = ""


@implementer(IAdapter)
class MockAdapter:
    """Plays."""

    def __init__(self, tools: IAdapterTools) -> None:
        self._clock = tools.clock

    def execute(self, spec: ExecutionSpec, sink: IRunSink) -> Execution:
        settings: MockSettings = spec.settings       # type: ignore[assignment]  # our own factory made it
        script = list(settings.script)
        if settings.echo:
            try:
                script.insert(0, Step(text=prompt_of(spec.request)))
            except IOPError as error:
                return refused(sink, error)
        return MockRun(spec, script, settings.fail, self._clock, sink)

    def close(self) -> Deferred[None]:
        return succeed(None)


class MockRun(Execution):
    """One performance. It starts in the next turn of the clock; steps without delay come together."""

    def __init__(self, spec: ExecutionSpec, script: list[Step], fail: str, clock: Any, sink: IRunSink) -> None:
        super().__init__(sink)
        self._spec = spec
        self._steps = (step for step in script for _ in range(step.repeat))
        self._step: Step | None = None
        self._fail = fail
        self._clock = clock
        self._said = 0
        self._due = clock.callLater(0, self._start)

    def _start(self) -> None:
        self._emit([events.started(self._spec.adapter, self._spec.target, "a script")])
        self._step = next(self._steps, None)
        self._advance()

    def _advance(self) -> None:
        """Wait until the step is due, or end behind the last one."""
        if self._stopped is not None:
            return
        if self._step is None:
            self._finish()
        elif not self._paused:
            self._due = self._clock.callLater(self._step.delay_s, self._play)

    def _play(self) -> None:
        """The step that is due, and those that follow it without a delay, as one emit of at most 64 events."""
        said = []
        while self._step is not None:
            self._said += 1
            text = self._step.text.replace("{n}", str(self._said))
            said.append(events.output(text, CHANNELS[self._step.channel]))
            self._step = next(self._steps, None)
            if len(said) == 64 or (self._step is not None and self._step.delay_s):
                break
        self._emit(said)
        self._advance()

    def _finish(self) -> None:
        if self._fail:
            self._end("failed", Outcome(code=self._fail, message="The script ends in this failure."))
        else:
            self._end("completed", Outcome(code="ok", finish_reason="stop"))

    def _stop(self, error: IOPError) -> None:
        if self._due.active():
            self._due.cancel()
        self._end_with(error)

    def _pause(self) -> None:
        if self._due.active():
            self._due.cancel()

    def _resume(self) -> None:
        if not self._due.active():
            step = self._step
            self._due = self._clock.callLater(step.delay_s if step else 0, self._play if step else self._start)


@implementer(IPlugin, IAdapterFactory)
class MockFactory:
    """`mock`: see the module."""

    name: ClassVar[str] = "mock"
    default_concurrency: ClassVar[int] = 1000

    def settings(self, target: TargetConfig) -> MockSettings:
        return checks.read_settings(target, MockSettings)

    def requirements(self, settings: MockSettings) -> list[Any]:
        return []

    def build(self, targets: dict[str, MockSettings], tools: IAdapterTools) -> MockAdapter:
        return MockAdapter(tools)


factory = MockFactory()
