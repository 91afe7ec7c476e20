"""A command table: one function is one command; its signature is its arguments, its docstring its help.

One table serves the SSH console, NodeCommandRequest and, later, the control plane::

    table = CommandTable()

    @table.command(scope="nodes:write", changes=True)
    async def drain(caller, node: str, *, wait: bool = False):
        \"\"\"Give a node no new runs. What runs already goes on. Example: drain gpu-1 --wait\"\"\"

    table.run_line("drain gpu-1 --wait", caller)   # a Deferred of the result

The first parameter is the caller's context. A parameter without a default is a positional argument, ``*words`` takes all that
are left, a parameter with a default is ``--an-option``. Types: str, int, float, bool (a switch), Literal. No reactor here.
"""

from __future__ import annotations

import difflib
import inspect
import re
import textwrap
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from twisted.internet.defer import Deferred, fail, maybeDeferred

from iop.commandline import Call, Command, UsageError, count_positionals, parameters_of, parse, split, words_of
from iop.errors import Forbidden
from iop.proto import run_pb2
from iop.runs import new_run_id

HELP_COLUMNS = 79         # a terminal has 80 where nobody made it wider


@dataclass(frozen=True)
class Caller:
    """Who calls, and from where: the context of the commands of this house. Each call gets a request id of its own."""

    face: str
    principal: str
    scopes: frozenset[str] = frozenset(("admin",))
    request_id: str = field(default_factory=new_run_id)

    @property
    def source(self) -> run_pb2.Source:
        return run_pb2.Source(face=self.face, principal=self.principal, request_id=self.request_id)

    def again(self) -> Caller:
        """The same caller, for another call."""
        return Caller(self.face, self.principal, self.scopes)


class CommandTable:
    """The commands of one role, and what completes their arguments."""

    def __init__(self) -> None:
        self.commands: dict[str, Command] = {}
        self._completers: dict[str, Callable[[typing.Any], object]] = {}
        self.command(scope="", text=help_text, name="help")(self._help)

    def command(self, function: Callable[..., object] | None = None, *, name: str = "", changes: bool = False,
                scope: str = "admin", columns: Sequence[object] = (), rows: str = "",
                text: Callable[[typing.Any], str] | None = None, verbatim: bool = False,
                exit_code: Callable[[typing.Any], int] | None = None) -> typing.Any:
        """Decorate a function (or coroutine function) as a command; its name's underscores become dashes."""
        def register(f: Callable[..., object]) -> Callable[..., object]:
            word = name or f.__name__.strip("_").replace("_", "-")
            self.commands[word] = Command(word, f, parameters_of(f), inspect.getdoc(f) or "", changes, scope, tuple(columns),
                                          rows, text, verbatim, exit_code)
            return f
        return register(function) if function is not None else register

    def completer(self, name: str) -> Callable[[typing.Any], typing.Any]:
        """Decorate a function of the context that gives the words (or a Deferred of them) for arguments of this name."""
        def register(f: Callable[[typing.Any], object]) -> Callable[[typing.Any], object]:
            self._completers[name] = f
            return f
        return register

    def parse(self, line: str) -> Call:
        """Read a line as typed, with or without a leading slash. Raises UsageError with what is allowed."""
        words = split(line)
        if not words:
            raise UsageError("There is no command in this line; `help` lists them.")
        command = self._find(words[0].removeprefix("/"))
        return parse(command, words[1:])

    def bind(self, name: str, arguments: Mapping[str, object]) -> Call:
        """A call from names and values (NodeCommandRequest.arguments). Raises UsageError."""
        command = self._find(name)
        return parse(command, words_of(command, arguments))

    def call(self, call: Call, context: object, scopes: Iterable[str] | None = None) -> Deferred[typing.Any]:
        """Carry out a call: a Deferred of its result (JSON-able, or an IStream), which fails with the command's IOPError.

        With `scopes`, only what these (or admin) allow; Forbidden otherwise.
        """
        needed = call.command.scope
        if scopes is not None and needed and needed not in scopes and "admin" not in scopes:
            return fail(Forbidden(f"{call.command.name} needs the scope {needed}, which this key lacks."))
        return maybeDeferred(call.command.function, context, *call.arguments, **call.options)

    def run_line(self, line: str, context: object, scopes: Iterable[str] | None = None) -> Deferred[typing.Any]:
        """parse() and call() in one."""
        return maybeDeferred(lambda: self.call(self.parse(line), context, scopes))

    def complete(self, text: str, context: object) -> Deferred[list[str]]:
        """The words that may stand where the last word of `text` begins, each whole; a Deferred of a sorted list."""
        return Deferred.fromCoroutine(self._complete(text, context))

    async def _complete(self, text: str, context: object) -> list[str]:
        *before, last = text.split(" ")
        before = [word for word in before if word]
        if not before:
            slash = "/" if last.startswith("/") else ""
            return sorted(slash + name for name in self.commands if name.startswith(last[len(slash):]))
        command = self.commands.get(before[0].removeprefix("/"))
        if command is None:
            return []
        found = await self._candidates(command, before[1:], last, context)
        return sorted({word for word in found if word.startswith(last)})

    async def _candidates(self, command: Command, before: list[str], last: str, context: object) -> Iterable[str]:
        options = {p.flag: p for p in command.of_kind("option")}
        if before and before[-1] in options and options[before[-1]].type is not bool:
            wanted = options[before[-1]]
        elif last.startswith("--"):
            return [*options, "--json"]
        else:
            taken = count_positionals(before, options)
            places = command.of_kind("positional")
            wanted = (places[taken:] or command.of_kind("rest") or [None])[0]
        if wanted is None:
            return []
        if command.name == "help":
            return self.commands
        if wanted.choices or wanted.name not in self._completers:
            return wanted.choices
        return await maybeDeferred(self._completers[wanted.name], context)

    def _find(self, name: str) -> Command:
        command = self.commands.get(name)
        if command is None:
            close = difflib.get_close_matches(name, self.commands, 1)
            raise UsageError(f"There is no command {name[:40]!r}.",
                             hint=f"Did you mean `{close[0]}`?" if close else "`help` lists the commands.")
        return command

    def _help(self, context: object, *name: str) -> object:
        """List the commands, or explain one. Example: help run"""
        if name:
            return self._find(name[0].removeprefix("/")).as_dict()
        return {"commands": [self.commands[word].as_dict() for word in sorted(self.commands)]}


def help_text(result: Mapping[str, typing.Any]) -> str:
    """What the command `help` of any table answers, for people."""
    if "commands" not in result:
        whole = re.sub(r"\[[^]]*\]", lambda match: match[0].replace(" ", "\0"), f"usage: {result['usage']} [--json]")
        return _wrapped(whole, "  ").replace("\0", " ") + "\n" + _paragraphs(result["help"])
    width = max(len(entry["name"]) for entry in result["commands"])
    lines = [_wrapped(f"  {entry['name']:{width}}  {entry['summary']}", " " * (width + 4)) for entry in result["commands"]]
    return "".join([*lines, "\n", _wrapped("`help NAME` explains one; --json at the end of any gives JSON.")])


def _paragraphs(text: str) -> str:
    """A docstring's paragraphs, each filled; its examples, which stand last and between dots, one on a line."""
    text, *examples = re.split(r"\s+Examples?: ", text, maxsplit=1)
    shown = [_wrapped(" ".join(paragraph.split())) for paragraph in text.split("\n\n")]
    if examples:
        shown.append("Examples:\n" + "".join(f"  {one}\n" for one in " ".join(examples[0].split()).split(" · ")))
    return "\n".join(shown)


def _wrapped(text: str, indent: str = "") -> str:
    return textwrap.fill(text, HELP_COLUMNS, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False) + "\n"
