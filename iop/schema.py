"""A YAML document against msgspec types: the fault told as one sentence with file, line and the allowed values."""

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
        raise _explain(document, value, kind, path, str(error)) from None


def _explain(document: Document, value: Any, kind: Any, path: Path, text: str) -> Exception:
    match = _AT.search(text)
    inner = _steps(match["path"]) if match else ()
    sentence = text[: match.start()] if match else text
    typ = _type_at(kind, inner)
    unknown = re.search(r"unknown field `([^`]*)`", sentence)
    if unknown:
        allowed = ", ".join(sorted(_fields(typ))) or "nothing"
        return document.error((*path, *inner, unknown[1]),
                              f"{show_path((*path, *inner, unknown[1]))} is not known; allowed here: {allowed}.")
    missing = re.search(r"missing required field `([^`]*)`", sentence)
    if missing:
        return document.error((*path, *inner), f"{show_path((*path, *inner))} needs `{missing[1]}`.")
    choices = _choices(typ)
    hint = f" Allowed: {', '.join(choices)}." if choices else ""
    sentence = sentence.replace("`", "")
    return document.error((*path, *inner), f"{show_path((*path, *inner))}: {sentence}.{hint}")


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
    if typing.get_origin(kind) is typing.Annotated:
        return _bare(typing.get_args(kind)[0])
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        rest = [arm for arm in typing.get_args(kind) if arm is not type(None)]
        return _bare(rest[0]) if len(rest) == 1 else kind
    return kind


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


def _choices(kind: Any) -> list[str]:
    kind = _bare(kind)
    return [str(item) for item in typing.get_args(kind)] if typing.get_origin(kind) is typing.Literal else []
