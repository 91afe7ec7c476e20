"""Any program as a target: an argv that never meets a shell, its output as text that is exact to the byte."""

from __future__ import annotations

import shutil
from typing import Any, ClassVar, Literal

from twisted.internet.defer import Deferred, succeed
from twisted.plugin import IPlugin
from zope.interface import implementer

from iop import events
from iop.adapters import argv as rules
from iop.adapters import settings as checks
from iop.adapters.executions import Execution, refused
from iop.adapters.place import Place
from iop.adapters.settings import Settings
from iop.adapters.utf8 import Utf8Stream
from iop.errors import AdapterError, ConfigError, InvalidRequest, IOPError, NodeRestarted, ProgramFailed, SupervisorLost
from iop.interfaces import (
    IAdapter,
    IAdapterFactory,
    IAdapterTools,
    IOffersInput,
    IOutlives,
    IProgram,
    IProgramReceiver,
    IResumes,
    IRunSink,
    ITakesInput,
)
from iop.proto.node_pb2 import TargetConfig
from iop.proto.run_pb2 import CHANNEL_STDERR, CHANNEL_STDOUT, Outcome
from iop.requirements import Program
from iop.runs import ExecutionSpec
from iop.spawning import ProgramEnding, SpawnRequest

LAST_S = 45.0        # after INT and TERM: KILL, the hunt for what is left of it (12 s each), its pipes read to their end


class CliSettings(Settings):
    """A profile. `argv` may hold {prompt}, {workdir} and {session}, each as a whole element."""

    argv: list[str]
    prompt: Literal["", "argument", "stdin"] = ""    # empty: as an argument when {prompt} stands in argv
    cwd: str = ""                                    # empty: a private folder of the run
    env: dict[str, str] = {}
    input: Literal["closed", "open"] = "closed"      # open: standard input takes more while the program runs
    int_s: float = 3.0                               # a stop: after INT, and
    term_s: float = 5.0                              # after TERM, wait this long
    ok_exit_codes: tuple[int, ...] = (0,)

    @property
    def by_argument(self) -> bool:
        return rules.PROMPT in self.argv


@implementer(IAdapter, IResumes)
class CliAdapter:
    """The programs of one node."""

    def __init__(self, tools: IAdapterTools) -> None:
        self._tools = tools

    def execute(self, spec: ExecutionSpec, sink: IRunSink) -> Execution:
        settings: CliSettings = spec.settings        # type: ignore[assignment]  # our own factory made it
        try:
            self._tools.require(factory.requirements(settings))
            request = self._spawn_request(spec, settings)
        except IOPError as error:
            return refused(sink, error)
        run = CliRun(spec, settings, request.argv[0], Place(), sink)
        run.begin(self._tools.spawner.spawn(request, run))
        return run

    def resume(self, spec: ExecutionSpec, sink: IRunSink, mark: bytes) -> Execution:
        """The policy is not asked again: the program runs already, as it was allowed."""
        settings: CliSettings = spec.settings        # type: ignore[assignment]  # our own factory made it
        try:
            place = Place.of(mark)
        except ValueError:
            self._tools.spawner.discard(spec.run_id, spec.attempt)   # nobody could tell what it says
            return refused(sink, SupervisorLost("The place in the journal of the program is of another version of IOP."))
        run = CliRun(spec, settings, settings.argv[0], place, sink)
        run.begin(self._tools.spawner.take_up(spec.run_id, spec.attempt, run, place.offset))
        return run

    def close(self) -> Deferred[None]:
        return succeed(None)

    def _spawn_request(self, spec: ExecutionSpec, settings: CliSettings) -> SpawnRequest:
        prompt = rules.prompt_of(spec.request)
        session = spec.request.session_id
        if rules.SESSION in settings.argv and not session:
            raise InvalidRequest("This target continues a session; give the run a session_id.")
        if settings.by_argument:
            rules.check_prompt_argument(prompt)
        workdir = "" if settings.cwd and rules.WORKDIR not in settings.argv else self._tools.workdir(spec.run_id)
        argv = rules.fill(settings.argv, {rules.PROMPT: prompt, rules.WORKDIR: workdir, rules.SESSION: session})
        environment = dict(self._tools.environment()) | settings.env | dict(spec.marker)
        return SpawnRequest(
            run_id=spec.run_id, attempt=spec.attempt, argv=(_located(argv[0], environment), *argv[1:]),
            cwd=settings.cwd or workdir, env=environment,
            stdin=None if settings.by_argument else prompt.encode("utf-8", "surrogatepass"),
            keep_input=settings.input == "open", int_s=settings.int_s, term_s=settings.term_s)


def _located(program: str, environment: dict[str, str]) -> str:
    if program.startswith("/"):
        return program
    found = shutil.which(program, path=environment.get("PATH", ""))
    if found is None:
        raise AdapterError(f"The program {program[:100]!r} is not on this node's PATH.",
                           hint="Install it there, or give its absolute path in the target's argv.")
    return found


@implementer(IOutlives, IProgramReceiver, ITakesInput)
class CliRun(Execution):
    """One program under way. `place` is how far an earlier start of this node told it."""

    def __init__(self, spec: ExecutionSpec, settings: CliSettings, path: str, place: Place, sink: IRunSink) -> None:
        super().__init__(sink)
        self._spec = spec
        self._path = path
        self._settings = settings
        self.stop_s = settings.int_s + settings.term_s + LAST_S
        self._program: IProgram | None = None
        self._input_open = settings.input == "open"
        self._text = {CHANNEL_STDOUT: Utf8Stream(place.stdout), CHANNEL_STDERR: Utf8Stream(place.stderr)}
        self._told_start = place.started
        self._offset = place.offset

    def begin(self, program: IProgram) -> None:
        self._program = program
        if self._stopped is not None:
            program.stop()
        elif self._paused:
            program.pause()

    def write(self, data: bytes, end: bool) -> None:
        if not self._input_open or self._program is None or self._ending is not None:
            raise InvalidRequest("The program's standard input is closed; a target with `input: open` keeps it open.")
        if data:
            self._program.write(data)
        if end:
            self._input_open = False
            self._program.close_input()

    def _stop(self, error: IOPError) -> None:
        if self._program is not None:        # held back or not: what it still says waits in its supervisor's journal
            self._program.stop()

    def _pause(self) -> None:
        if self._program is not None:
            self._program.pause()

    def _resume(self) -> None:
        if self._program is not None:
            self._program.resume()

    # the program

    def kept(self, mark: bytes) -> None:
        if self._program is not None:
            self._program.kept(Place.of(mark).offset)

    def _mark(self) -> bytes:
        return Place(self._offset, self._told_start, self._text[CHANNEL_STDOUT].tail,
                     self._text[CHANNEL_STDERR].tail).packed()

    def program_started(self, pid: int) -> None:
        if not self._told_start:                 # it stands in the journal before the first output
            self._told_start = True
            self._emit([events.started(self._spec.adapter, self._spec.target, self._path, pid=pid)], self._mark())

    def output_received(self, channel: int, data: bytes, offset: int) -> None:
        text, exact = self._text[channel].feed(data)
        self._offset = offset
        if text or exact:
            self._emit([events.output(text, channel, exact=exact)], self._mark())

    def program_ended(self, ending: ProgramEnding) -> None:
        for channel, stream in self._text.items():
            text, exact = stream.finish()
            if text or exact:
                self._emit([events.output(text, channel, exact=exact)], self._mark())
        self._end(*_outcome(ending, self._stopped, self._settings.ok_exit_codes))


def _outcome(ending: ProgramEnding, stopped: IOPError | None, ok_exit_codes: tuple[int, ...]) -> tuple[str, Outcome]:
    """(kind, outcome): our own reason, the exit code and the signal stay apart."""
    if stopped is not None:
        kind, outcome = events.kind_of(stopped), events.outcome_of(stopped)
    elif ending.lost:
        kind, outcome = "failed" if ending.found else "unknown", events.outcome_of(SupervisorLost(_lost(ending)))
    elif ending.error:
        reason = NodeRestarted if ending.interrupted else AdapterError
        kind, outcome = "failed", events.outcome_of(reason(ending.error))
    elif ending.exit_code is not None and ending.exit_code in ok_exit_codes:
        kind, outcome = "completed", Outcome(code="ok")
    else:
        how = f"with exit code {ending.exit_code}" if ending.signal is None else f"by signal {ending.signal}"
        kind, outcome = "failed", events.outcome_of(ProgramFailed(f"The program ended {how}."))
    if ending.exit_code is not None:
        outcome.exit_code = ending.exit_code
    if ending.signal is not None:
        outcome.signal = ending.signal
    outcome.processes_left = ending.processes_left
    outcome.steps.extend(ending.steps)
    return kind, outcome


def _lost(ending: ProgramEnding) -> str:
    """What is known of a program whose supervisor is gone."""
    if not ending.found:
        return ending.lost
    what = "one process still ran and was" if ending.found == 1 else f"{ending.found} processes still ran and were"
    return f"{ending.lost} Of it, {what} ended."


@implementer(IPlugin, IAdapterFactory, IOffersInput)
class CliFactory:
    """`cli`: see the module."""

    name: ClassVar[str] = "cli"
    default_concurrency: ClassVar[int] = 4

    def settings(self, target: TargetConfig) -> CliSettings:
        settings = checks.read_settings(target, CliSettings)
        rules.check_argv(settings.argv)
        rules.check_environment(settings.env)
        checks.check_seconds(int_s=settings.int_s, term_s=settings.term_s)
        if settings.prompt and (settings.prompt == "argument") is not settings.by_argument:
            raise ConfigError(f"prompt: {settings.prompt} does not fit argv; allowed is `argument` with {{prompt}} as an "
                              "element of argv, or `stdin` without it.")
        if settings.cwd and not settings.cwd.startswith("/"):
            raise ConfigError("cwd must be an absolute path; without it each run gets a private folder.")
        if not settings.ok_exit_codes or not all(0 <= code <= 255 for code in settings.ok_exit_codes):
            raise ConfigError("ok_exit_codes must be a list of numbers; allowed are 0 to 255.")
        return settings

    def requirements(self, settings: CliSettings) -> list[Program]:
        return [Program(tuple(settings.argv), settings.cwd, settings.env)]

    def takes_input(self, settings: CliSettings) -> bool:
        return settings.input == "open"

    def build(self, targets: dict[str, Any], tools: IAdapterTools) -> CliAdapter:
        return CliAdapter(tools)


factory = CliFactory()
