"""Reading a command line: words to a Call, by what a function's signature states. Pure."""

from __future__ import annotations

import inspect
import math
import shlex
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from iop.errors import InvalidRequest

LONGEST_LINE = 65536  # characters; a longer prompt belongs into the management API


class UsageError(InvalidRequest):
    """The command line cannot be understood."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument as the signature states it. `kind`: positional, rest or option."""

    name: str
    kind: str
    type: type                      # str, int, float or bool
    choices: tuple[str, ...] = ()
    default: object = None

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def usage(self) -> str:
        word = self.name.replace("_", "-").upper()
        if self.kind == "positional":
            return word
        if self.kind == "rest":
            return f"[{word}...]"
        allowed = "|".join(self.choices)
        return f"[{self.flag}]" if self.type is bool else f"[{self.flag} {allowed if 0 < len(allowed) <= 40 else word}]"

    def read(self, text: str) -> object:
        """The value that `text` is; raises UsageError with what is allowed."""
        word = self.flag if self.kind == "option" else self.name
        if self.choices and text not in self.choices:
            raise UsageError(f"{word} is one of {', '.join(self.choices)}, not {text[:40]!r}.")
        try:
            value = self.type(text)
            if self.type is float and not math.isfinite(value):
                raise ValueError
        except ValueError:
            kind = "a whole number" if self.type is int else "a number"
            raise UsageError(f"{word} is {kind}, not {text[:40]!r}.") from None
        return value


@dataclass(frozen=True)
class Command:
    """One command of a table."""

    name: str
    function: Callable[..., object]
    parameters: tuple[Parameter, ...]
    help: str
    changes: bool = False           # it changes something: whoever carries it out audits it first
    scope: str = "admin"            # what a caller must be allowed (iop.keys.SCOPES)
    columns: tuple[object, ...] = ()    # for a list of results, as iop.rendering.table takes them
    rows: str = ""                  # the key of the result under which that list stands; empty: the result is the list
    text: Callable[[typing.Any], str] | None = None  # how to show the result to people, when it is no table
    verbatim: bool = False          # from its first *word on nothing is an option
    exit_code: Callable[[typing.Any], int] | None = None  # that tells of a result; None: 0 of each

    @property
    def summary(self) -> str:
        """The first sentence."""
        first = self.help.split("\n\n")[0].split(". ")[0]
        return " ".join(first.split()).rstrip(".") + "."

    @property
    def usage(self) -> str:
        return " ".join([self.name, *(p.usage for p in self.parameters)])

    def of_kind(self, kind: str) -> list[Parameter]:
        return [p for p in self.parameters if p.kind == kind]

    def as_dict(self) -> dict[str, object]:
        return {"name": self.name, "usage": self.usage, "summary": self.summary, "help": self.help, "changes": self.changes,
                "scope": self.scope}


@dataclass(frozen=True, slots=True)
class Call:
    """A command with its arguments, ready to be carried out. `json`: the caller asked for JSON (``--json``)."""

    command: Command
    arguments: tuple[object, ...] = ()
    options: Mapping[str, object] = field(default_factory=dict)
    json: bool = False


def split(line: str) -> list[str]:
    if len(line) > LONGEST_LINE:
        raise UsageError(f"The line is longer than {LONGEST_LINE} characters.", hint="Use the management API.")
    try:
        return shlex.split(line)
    except ValueError:
        raise UsageError("A quote in this line is not closed.", hint='Put "..." around words with a single quote.') from None


def parse(command: Command, words: list[str]) -> Call:
    places, rest = command.of_kind("positional"), command.of_kind("rest")
    options = {p.flag: p for p in command.of_kind("option")}
    plain: list[str] = []
    values: dict[str, object] = {}
    # Behind a verbatim line, the last --json still belongs to whoever typed it: `ssh edge cmd n1 status --json`.
    json = command.verbatim and words[-1:] == ["--json"] and "--" not in words
    left = words[:-1] if json else list(words)
    while left:
        word = left.pop(0)
        if word == "--" or (command.verbatim and len(plain) >= len(places) and not word.startswith("--")):
            plain += left if word == "--" else [word, *left]
            break
        if word == "--json":
            json = True
        elif word.startswith("--"):
            _option(command, options, word, left, values)
        else:
            plain.append(word)
    if len(plain) < len(places):
        raise UsageError(f"{places[len(plain)].usage} is missing; usage: {command.usage}", hint=f"See `help {command.name}`.")
    if len(plain) > len(places) and not rest:
        raise UsageError(f"{plain[len(places)][:40]!r} is one argument too many; usage: {command.usage}")
    kinds = places + rest * (len(plain) - len(places))
    return Call(command, tuple(p.read(word) for p, word in zip(kinds, plain, strict=True)), values, json)


def _option(command: Command, options: dict[str, Parameter], word: str, left: list[str], values: dict[str, object]) -> None:
    flag, equals, text = word.partition("=")
    parameter = options.get(flag)
    if parameter is None:
        allowed = ", ".join([*options, "--json"])
        raise UsageError(f"{command.name} has no option {flag[:40]}; it has {allowed}.",
                         hint="Put -- before words that begin with two dashes.")
    if parameter.type is bool:
        if equals:
            raise UsageError(f"{flag} is a switch and takes no value.")
        values[parameter.name] = True
        return
    if not equals:
        if not left:
            raise UsageError(f"{flag} needs a value.")
        text = left.pop(0)
    values[parameter.name] = parameter.read(text)


def words_of(command: Command, arguments: Mapping[str, object]) -> list[str]:
    """Names and values as the words that would have been typed. Raises UsageError."""
    unknown = [name for name in arguments if name not in {p.name for p in command.parameters}]
    if unknown:
        raise UsageError(f"{command.name} takes no {', '.join(map(repr, unknown))}; usage: {command.usage}")
    words = []
    for option in command.of_kind("option"):
        value = arguments.get(option.name)
        if option.type is bool:
            words += [option.flag] if value is True else []
        elif value is not None:
            words.append(f"{option.flag}={value}")
    words.append("--")
    for place in command.of_kind("positional"):
        if place.name not in arguments:
            raise UsageError(f"{place.usage} is missing; usage: {command.usage}")
        words.append(str(arguments[place.name]))
    for rest in command.of_kind("rest"):
        value = arguments.get(rest.name, [])
        words += map(str, value) if isinstance(value, list) else [str(value)]
    return words


def count_positionals(words: list[str], options: Mapping[str, Parameter]) -> int:
    count, skip = 0, False
    for word in words:
        if skip:
            skip = False
        elif word in options:
            skip = options[word].type is not bool
        elif not word.startswith("--"):
            count += 1
    return count


def parameters_of(function: Callable[..., object]) -> tuple[Parameter, ...]:
    hints = typing.get_type_hints(function)
    found = []
    for parameter in list(inspect.signature(function).parameters.values())[1:]:
        kind, choices = _type(hints.get(parameter.name, str))
        role = "rest" if parameter.kind is parameter.VAR_POSITIONAL else (
            "positional" if parameter.default is parameter.empty else "option")
        found.append(Parameter(parameter.name, role, kind, choices, parameter.default))
    return tuple(found)


def _type(hint: object) -> tuple[type, tuple[str, ...]]:
    if typing.get_origin(hint) is typing.Literal:
        return str, tuple(str(choice) for choice in typing.get_args(hint) if choice)
    if isinstance(hint, types.UnionType):
        hint = next(part for part in typing.get_args(hint) if part is not type(None))
    if hint not in (str, int, float, bool):
        raise TypeError(f"a command's argument is str, int, float, bool or a Literal, not {hint!r}")
    return typing.cast("type", hint), ()
