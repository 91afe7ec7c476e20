"""The tools of a Responses request as a model of chat/completions is told of them, and back. Pure.

A chat knows functions only. So a `namespace` is flattened into functions with its name before theirs, a `custom` tool becomes
a function with one text argument, and a client's own `tool_search` a function of that name. Node and edge read the same body,
each for its half of the way.
"""

from __future__ import annotations

from typing import Any, NamedTuple

FUNCTION, CUSTOM, SEARCH = "function", "custom", "tool_search"
CUSTOM_ARGUMENT = "input"
_JOINT = "__"
# Items of an input that bring tools with them: what a tool_search found, and what codex adds in mid-conversation.
_BRINGING = ("tool_search_output", "additional_tools")


class Tool(NamedTuple):
    """A tool that can be told. `flat` is its name in the chat; `spec` is what the client says of it."""

    flat: str
    kind: str
    name: str
    namespace: str
    spec: dict[str, Any]


def flat_name(namespace: str, name: str) -> str:
    """The one name of a tool of a namespace ("" for none)."""
    if not namespace:
        return name
    return namespace + name if namespace.endswith(_JOINT) else namespace + _JOINT + name


def read_tools(body: dict[str, Any]) -> tuple[dict[str, Tool], list[str]]:
    """The tools by their flat names, in order, and what was left out, as sentences. Never fails: of two tools with one name
    the first counts, and what is none is left out."""
    found: dict[str, Tool] = {}
    left_out: list[str] = []
    given = body.get("input")
    items = given if isinstance(given, list) else []
    for place in (body, *(item for item in items if isinstance(item, dict) and item.get("type") in _BRINGING)):
        tools = place.get("tools")
        for spec in tools if isinstance(tools, list) else ():
            _add(spec, "", found, left_out)
    return found, left_out


def _add(spec: Any, namespace: str, found: dict[str, Tool], left_out: list[str]) -> None:
    kind = spec.get("type") if isinstance(spec, dict) else None
    name = spec.get("name") if isinstance(spec, dict) else None
    if kind == "namespace" and isinstance(name, str) and isinstance(spec.get("tools"), list) and not namespace:
        for inner in spec["tools"]:
            _add(inner, name, found, left_out)
        return
    if kind == SEARCH and spec.get("execution") == "client":
        name = SEARCH
    elif kind not in (FUNCTION, CUSTOM):
        left_out.append(f"The tool {str(name or kind)[:64]!r} (type {str(kind)[:32]!r}) was left out: "
                        "the backend's API knows functions only.")
        return
    if not isinstance(name, str) or not name:
        left_out.append("A tool without a name was left out.")
        return
    tool = Tool(flat_name(namespace, name), str(kind), name, namespace, spec)
    found.setdefault(tool.flat, tool)
