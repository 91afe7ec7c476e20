"""The output items of one response, and the events that tell how they grow. Pure: deltas in, events out.

::

    item added -> part added -> delta … -> text done -> part done -> item done        message, reasoning
    item added -> arguments delta … -> arguments done -> item done                    function_call, custom_tool_call

One message or reasoning item is open at most; another kind of delta closes it. Calls stay open until the end, since a
backend may send the pieces of parallel calls in turns.
"""

from __future__ import annotations

from typing import Any

from iop.edge.models.deltas import CallBegin, CallPiece, Delta, Note, Reasoning, Text
from iop.edge.models.foreign_json import read_object
from iop.toolnames import CUSTOM, CUSTOM_ARGUMENT, FUNCTION, SEARCH, Tool

Event = dict[str, Any]
_COMPLETED, _INCOMPLETE, _IN_PROGRESS = "completed", "incomplete", "in_progress"


class _TextItem:
    """A message, or a thought: told as its content, or as its summary where the client asked for one."""

    def __init__(self, kind: str, item_id: str, place: int) -> None:
        self.kind = kind
        self._pieces: list[str] = []
        self._head: dict[str, Any] = {"id": item_id, "type": "message" if kind == "output_text" else "reasoning"}
        index = "summary_index" if kind == "summary_text" else "content_index"
        self._at = {"item_id": item_id, "output_index": place, index: 0}
        self._place = place
        self._deltas = {"output_text": "response.output_text", "reasoning_text": "response.reasoning_text",
                        "summary_text": "response.reasoning_summary_text"}[kind]
        self._part = "response.reasoning_summary_part" if kind == "summary_text" else "response.content_part"
        self._logprobs: dict[str, Any] = {"logprobs": []} if kind == "output_text" else {}

    def item(self, status: str) -> dict[str, Any]:
        parts = [] if status == _IN_PROGRESS else [self._part_json("".join(self._pieces))]
        if self.kind == "output_text":
            return {**self._head, "status": status, "role": "assistant", "content": parts}
        if self.kind == "summary_text":
            return {**self._head, "summary": parts, "encrypted_content": None, "status": status}
        return {**self._head, "summary": [], "content": parts, "encrypted_content": None, "status": status}

    def _part_json(self, text: str) -> dict[str, Any]:
        more = {"annotations": [], "logprobs": []} if self.kind == "output_text" else {}
        return {"type": self.kind, "text": text, **more}

    def opened(self) -> list[Event]:
        return [{"type": "response.output_item.added", "output_index": self._place, "item": self.item(_IN_PROGRESS)},
                {"type": self._part + ".added", **self._at, "part": self._part_json("")}]

    def more(self, text: str) -> Event:
        self._pieces.append(text)
        return {"type": self._deltas + ".delta", **self._at, "delta": text, **self._logprobs}

    def closed(self, status: str) -> list[Event]:
        text = "".join(self._pieces)
        return [{"type": self._deltas + ".done", **self._at, "text": text, **self._logprobs},
                {"type": self._part + ".done", **self._at, "part": self._part_json(text)},
                {"type": "response.output_item.done", "output_index": self._place, "item": self.item(status)}]


class _CallItem:
    """A call of a tool, as the client's own kind of tool."""

    def __init__(self, tool: Tool, call_id: str, run: str, place: int) -> None:
        self._tool = tool
        self._pieces: list[str] = []
        prefix, kind = {FUNCTION: ("fc", "function_call"), CUSTOM: ("ctc", "custom_tool_call"),
                        SEARCH: ("tsc", "tool_search_call")}[tool.kind]
        self._head: dict[str, Any] = {"id": f"{prefix}_{run}_{place}", "type": kind, "call_id": call_id}
        if tool.kind == SEARCH:
            self._head["execution"] = "client"
        else:
            self._head["name"] = tool.name
            if tool.namespace:
                self._head["namespace"] = tool.namespace
        self._at = {"item_id": self._head["id"], "output_index": place}
        self._place = place

    def item(self, status: str) -> dict[str, Any]:
        arguments = "" if status == _IN_PROGRESS else "".join(self._pieces)
        if self._tool.kind == CUSTOM:
            return {**self._head, "status": status, "input": _custom_input(arguments)}
        if self._tool.kind == SEARCH:
            return {**self._head, "status": status, "arguments": read_object(arguments) or {}}
        return {**self._head, "status": status, "arguments": arguments}

    def opened(self) -> list[Event]:
        return [{"type": "response.output_item.added", "output_index": self._place, "item": self.item(_IN_PROGRESS)}]

    def more(self, arguments: str) -> list[Event]:
        """Only a function's arguments are the client's own text already while they come."""
        self._pieces.append(arguments)
        if self._tool.kind != FUNCTION:
            return []
        return [{"type": "response.function_call_arguments.delta", **self._at, "delta": arguments}]

    def closed(self, status: str) -> list[Event]:
        item = self.item(status)
        events: list[Event] = []
        if self._tool.kind == CUSTOM:
            events = [{"type": "response.custom_tool_call_input.delta", **self._at, "delta": item["input"]},
                      {"type": "response.custom_tool_call_input.done", **self._at, "input": item["input"]}]
        elif self._tool.kind == FUNCTION:
            events = [{"type": "response.function_call_arguments.done", **self._at, "name": self._tool.name,
                       "arguments": item["arguments"]}]
        return [*events, {"type": "response.output_item.done", "output_index": self._place, "item": item}]


class ResponseItems:
    """The items so far. `tools` are the request's, by the names that the model knows them by."""

    def __init__(self, run_id: str, tools: dict[str, Tool], summarised: bool) -> None:
        self._run = run_id
        self._tools = tools
        self._thought = "summary_text" if summarised else "reasoning_text"
        self._items: list[_TextItem | _CallItem] = []
        self._statuses: dict[int, str] = {}          # of the items that are done, by their place
        self._text: _TextItem | None = None          # the one that is open
        self._calls: dict[int, _CallItem] = {}       # by the backend's index
        self.notes: list[dict[str, object]] = []     # what a program did beside its output

    def add(self, delta: Delta) -> list[Event]:
        """The events that tell of a delta, without their sequence_number."""
        match delta:
            case Text(text):
                return self._more("output_text", text)
            case Reasoning(text):
                return self._more(self._thought, text)
            case CallBegin(index, call_id, name):
                return self._call(index, call_id, name)
            case CallPiece(index, arguments):
                return self._calls[index].more(arguments)
            case Note(item):
                self.notes.append(item)
                return [{"type": "response.x_iop", "x_iop": item}]

    def finish(self, status: str) -> list[Event]:
        """The events behind the last delta: what is open is closed, as `status` of the response says."""
        closed = status if status == _COMPLETED else _INCOMPLETE
        return [event for place in range(len(self._items)) if place not in self._statuses
                for event in self._close(place, closed)]

    def output(self) -> list[dict[str, Any]]:
        """All items that are done."""
        return [self._items[place].item(status) for place, status in sorted(self._statuses.items())]

    def _more(self, kind: str, text: str) -> list[Event]:
        events: list[Event] = []
        if self._text is None or self._text.kind != kind:
            events = self._close_text()
            place = len(self._items)
            prefix = "msg" if kind == "output_text" else "rs"
            self._text = _TextItem(kind, f"{prefix}_{self._run}_{place}", place)
            self._items.append(self._text)
            events += self._text.opened()
        events.append(self._text.more(text))
        return events

    def _close_text(self) -> list[Event]:
        if self._text is None:
            return []
        place, self._text = self._items.index(self._text), None
        return self._close(place, _COMPLETED)

    def _close(self, place: int, status: str) -> list[Event]:
        self._statuses[place] = status
        return self._items[place].closed(status)

    def _call(self, index: int, call_id: str, name: str) -> list[Event]:
        events = self._close_text()
        tool = self._tools.get(name) or Tool(name, FUNCTION, name, "", {})
        item = self._calls[index] = _CallItem(tool, call_id, self._run, len(self._items))
        self._items.append(item)
        return events + item.opened()


def _custom_input(arguments: str) -> str:
    """The one argument of a custom tool; a model that wrote its input without the object around it is understood too."""
    value = (read_object(arguments) or {}).get(CUSTOM_ARGUMENT)
    return value if isinstance(value, str) else arguments
