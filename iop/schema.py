"""A document against msgspec types: the fault told as one sentence with its place and the allowed values."""

from __future__ import annotations

import re
import types
import typing
from typing import Any, TypeVar

import msgspec

from iop.yamlfile import Document, Path, show_path

T = TypeVar("T")

_AT = re.compile(r" - at `\$(?P<path>.*)`$")
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]|\[\.\.\.\]")


def convert(document: Document, value: Any, kind: type[T], path: Path = ()) -> T:
    """`value`, which stands at `path` of the document, as `kind`. Raises ConfigError.

    Mappings with free keys are converted entry by entry, so that a fault names the entry.
    """
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise document.error(*fault(kind, str(error), path)) from None


def fault(kind: Any, text: str, path: Path = (), whole: str = "the file") -> tuple[Path, str]:
    """Where a value at `path` does not fit `kind`, and the sentence for it, from what msgspec tells."""
    match = _AT.search(text)
    inner = _steps(match["path"]) if match else ()
    sentence = text[: match.start()] if match else text
    typ, here = _type_at(kind, inner), (*path, *inner)
    name = show_path(here) if here else whole
    unknown = re.search(r"unknown field `([^`]*)`", sentence)
    if unknown:
        allowed = ", ".join(sorted(_fields(typ))) or "nothing"
        return (*here, unknown[1]), f"{show_path((*here, unknown[1]))} is not known; allowed here: {allowed}."
    missing = re.search(r"missing required field `([^`]*)`", sentence)
    if missing:
        return here, f"{name} needs `{missing[1]}`."
    allowed = _allowed(typ)
    return here, f"{name} must be {allowed}." if allowed else f"{name}: {sentence.replace('`', '')}."


def _steps(text: str) -> Path:
    steps: list[str | int] = []
    for name, index in _STEP.findall(text):
        if name:
            steps.append(name)
        elif index:
            steps.append(int(index))
        else:
            break  # an entry of a free mapping: the nearest line around it is told
    return tuple(steps)


def _bare(kind: Any) -> Any:
    """The type behind Annotated and Optional."""
    return _taken_apart(kind)[0]


def _taken_apart(kind: Any) -> tuple[Any, list[msgspec.Meta]]:
    """A type without Annotated and Optional, and the bounds that stood there."""
    arguments = typing.get_args(kind)
    if typing.get_origin(kind) is typing.Annotated:
        bare, bounds = _taken_apart(arguments[0])
        return bare, [*bounds, *(one for one in arguments[1:] if isinstance(one, msgspec.Meta))]
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        rest = [arm for arm in arguments if arm is not type(None)]
        if len(rest) == 1:
            return _taken_apart(rest[0])
    return kind, []


def _fields(kind: Any) -> dict[str, Any]:
    kind = _bare(kind)
    if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
        return {}
    hints = typing.get_type_hints(kind, include_extras=True)
    return {field.encode_name: hints[field.name] for field in msgspec.structs.fields(kind)}


def _type_at(kind: Any, path: Path) -> Any:
    for step in path:
        kind = _bare(kind)
        if isinstance(step, int):
            arguments = typing.get_args(kind)
            kind = arguments[0] if arguments else Any
        else:
            kind = _fields(kind).get(step, Any)
    return kind


_WORDS = {str: "text", int: "a whole number", float: "a number", bool: "true or false", list: "a list", tuple: "a list",
          dict: "a mapping of names"}


def _allowed(kind: Any) -> str:
    """What may stand there, in words; empty when this module does not know."""
    bare, bounds = _taken_apart(kind)
    origin = typing.get_origin(bare)
    if origin is typing.Literal:
        return f"one of {', '.join(str(one) for one in typing.get_args(bare) if one != '')}"
    if _fields(bare):
        return f"a mapping of {', '.join(sorted(_fields(bare)))}"
    words = _WORDS.get(origin or bare, "")
    if origin in (list, tuple) and (each := _allowed(typing.get_args(bare)[0])):
        words += f", each entry {each}"
    if origin is dict and (each := _allowed(typing.get_args(bare)[1])):
        words += f", each value {each}"
    for bound in bounds:
        if bound.description is not None:
            words += f": {bound.description}"
        elif bound.ge is not None:
            words += f" from {bound.ge:g}" if bound.le is None else f" from {bound.ge} to {bound.le}"
    return words
