"""Text for a terminal: what came from outside made harmless, and results as tables. Pure.

Model output, program output and names from other machines may hold sequences that move the cursor, set the window's title or
type into the terminal (CWE-150). What a person did not type goes through safe_tty() or safe_line() on its way there.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from iop.errors import IOPError
from iop.events import json_encode
from iop.exits import NOT_YET, verified
from iop.runs import ENDINGS

# C0 but newline and tab, DEL, C1, bidi controls, lone surrogates, and the invisible tag characters.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\U000e0000-\U000e007f]")
_UNSAFE_IN_LINE = re.compile(_UNSAFE.pattern[:-1] + "\t\n]")
_GAP = "  "
_NARROWEST = 4  # cells that a column is left when the window is too narrow

# The channels of a run that are its answer, and belong on standard output; all else is told on standard error.
ANSWER_CHANNELS = frozenset(("text", "stdout"))

Column = str | tuple[str, str | Callable[[Mapping[str, Any]], object]]


def _shown(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"<U+{code:04X}>"


def safe_tty(text: str) -> str:
    """`text` with every character that a terminal would obey shown instead; newlines and tabs stay."""
    return _UNSAFE.sub(_shown, text)


def safe_line(text: str) -> str:
    """The same for what must stay on one line: newlines and tabs are shown too."""
    return _UNSAFE_IN_LINE.sub(_shown, text)


def json_line(value: object) -> str:
    """`value` as one line of JSON in which those characters are escaped: the same JSON, harmless to look at."""
    return _UNSAFE.sub(_json_escape, json_encode(value).decode("utf-8"))


def _json_escape(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def cells(text: str) -> int:
    """How many cells of a terminal `text` takes (it is safe already)."""
    if text.isascii():
        return len(text)
    return sum(map(_cells_of, text))


def _cells_of(character: str) -> int:
    if unicodedata.combining(character) or character == "\u200d":
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def clip(text: str, width: int) -> str:
    """`text` cut to `width` cells, with an ellipsis when something was cut."""
    if cells(text) <= width:
        return text
    taken = 0
    for at, character in enumerate(text):
        taken += _cells_of(character)
        if taken > width - 1:
            return text[:at] + "…"
    return text


def load_text(load: Mapping[str, Any]) -> str:
    """What a machine has to do: processors, memory and, where there are any, graphics processors, each in per cent."""
    if not load:
        return ""
    memory = _per_cent(load["memory_used_bytes"] / load["memory_total_bytes"]) if load["memory_total_bytes"] else "?"
    return "/".join([_per_cent(load["busy"]), memory, *(_per_cent(gpu["busy"]) for gpu in load["gpus"])]) + "%"


def _per_cent(share: float) -> str:
    return str(round(share * 100))


def value_text(value: object) -> str:
    """A value of JSON as people read it in one line."""
    if value is None or value == "" or value == [] or value == {}:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ",".join(f"{key}={value_text(item)}" for key, item in value.items())
    if isinstance(value, list | tuple):
        return ",".join(map(value_text, value))
    return safe_line(str(value))


def table(rows: Iterable[Mapping[str, Any]], columns: Sequence[Column], width: int = 80) -> str:
    """A table with a header line. A column is a key, or (header, key with dots), or (header, function of the row).

    Fits into `width` cells by cutting the widest columns, the first one last; 0 means any width.
    """
    heads = [_column(column) for column in columns]
    body = [[value_text(get(row)) for _, get in heads] for row in rows]
    lines = [[head for head, _ in heads], *body]
    widths = _fit([max(map(cells, column)) for column in zip(*lines, strict=True)], width)
    return "".join(_line(line, widths) for line in lines)


def _column(column: Column) -> tuple[str, Callable[[Mapping[str, Any]], object]]:
    head, source = (column.upper().replace("_", " "), column) if isinstance(column, str) else column
    return head, (source if callable(source) else lambda row: _dig(row, source))


def _dig(row: object, path: str) -> object:
    for key in path.split("."):
        row = row.get(key) if isinstance(row, Mapping) else None
    return row


def _fit(widths: list[int], width: int) -> list[int]:
    widths = [min(each, width or each) for each in widths]
    while width and sum(widths) + len(_GAP) * (len(widths) - 1) > width:
        widest = max(range(1, len(widths)), key=widths.__getitem__, default=0)
        if widths[widest] <= _NARROWEST:
            widest = 0
        if widths[widest] <= _NARROWEST:
            break
        widths[widest] -= 1
    return widths


def _line(line: Sequence[str], widths: Sequence[int]) -> str:
    parts = [clip(text, width) for text, width in zip(line, widths, strict=True)]
    padded = [part + " " * (width - cells(part)) for part, width in zip(parts, widths, strict=True)]
    return _GAP.join(padded).rstrip() + "\n"


def fields(value: Mapping[str, Any], indent: str = "") -> str:
    """A mapping as lines ``key: value``, nested ones indented."""
    lines = []
    width = max((len(key) for key in value), default=0) + 1
    for key, item in value.items():
        if isinstance(item, Mapping) and item:
            lines.append(f"{indent}{safe_line(key)}:\n{fields(item, indent + '  ')}")
        elif isinstance(item, list) and any(isinstance(entry, Mapping) for entry in item):
            lines.append(f"{indent}{safe_line(key)}:\n" + "".join(_entry(entry, indent + "  ") for entry in item))
        else:
            lines.append(f"{indent}{safe_line(key) + ':':{width}} {value_text(item)}\n")
    return "".join(lines)


def _entry(entry: object, indent: str) -> str:
    text = fields(entry, indent + "  ") if isinstance(entry, Mapping) else f"{indent}  {value_text(entry)}\n"
    return indent + "- " + text[len(indent) + 2:]


def result_text(result: Any, columns: Sequence[Column] = (), rows: str = "", width: int = 80) -> str:
    """A command's result for people: a table when it declares columns, else fields, else the value."""
    listed = result.get(rows) if rows and isinstance(result, Mapping) else result
    if columns and isinstance(listed, list):
        return table(listed, columns, width) if listed else "none\n"
    if isinstance(result, Mapping):
        return fields(result)
    if isinstance(result, list):
        return "".join(_entry(entry, "") for entry in result) or "none\n"
    return "" if result is None else safe_tty(str(result)).rstrip("\n") + "\n"


def error_text(error: IOPError, json: bool, *, head: str = "error") -> str:
    """An error as text that is safe, ending in a newline: a sentence with its hint below it, or the API's error object."""
    if json:
        return json_line({"error": error.as_dict()}) + "\n"
    hint = f"\n{' ' * len(head)}  {error.hint}" if error.hint else ""
    return safe_tty(f"{head}: {error.message}{hint}\n")


def counted(number: int, noun: str) -> str:
    """A number of things: "1 run", "2 runs"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def findings_text(found: Mapping[str, Any]) -> str:
    """What verifying a run has found (iop.wholeness), a sentence a line."""
    verdict = {0: "is whole", NOT_YET: "has not yet ended"}.get(verified(found), "is NOT whole")
    lines = [f"{found['run_id']} {verdict}: {counted(found['events'], 'event')}, {counted(found['bytes'], 'byte')} of "
             f"output, digest {found['digest'][:16]}…"]
    lines += [f"The events {gap['first']} to {gap['last']} ({gap['missing']}) are lost." for gap in found["gaps"]]
    lines += found["faults"]
    if found["checked"] == "numbers" and found["state"] in ENDINGS:
        lines.append("Its ending was made by the edge, without its node's totals: only the numbering was checked.")
    if found["late"]:
        lines.append(f"After its ending came {counted(found['late'], 'event')}, kept apart.")
    return "".join(f"{safe_line(line)}\n" for line in lines)


def life_line(event: Mapping[str, Any]) -> str:
    """A lifecycle event as one line that is safe: its number, when, what, where, and who did it from which face."""
    detail = {key: value for key, value in (event.get("detail") or {}).items() if value not in (None, "", [], {})}
    source = event.get("source") or {}
    who = str(source.get("principal") or "")
    if who.startswith("SHA256:"):        # of an SSH key: its beginning tells it from others, the audit trail has all of it
        fingerprint, _, comment = who.partition(" ")
        who = f"{fingerprint[:15]}… {comment}".rstrip()
    said = [event.get("node_id"), event.get("run_id"), value_text(detail) if detail else "",
            f"by {who} ({source['face']})" if who and source.get("face") else ""]
    moment = str(event["at"])[:19].replace("T", " ")
    return safe_line(f"{event['id']:>6}  {moment}  {event['type']:14}  {'  '.join(filter(None, said))}").rstrip()


def event_note(event: Mapping[str, Any]) -> str:
    """What an event of a run says to people beside its output and its ending; empty where it says nothing. Not safe yet."""
    note = _NOTES.get(event["type"])
    return note(event) if note is not None else ""


_NOTES: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "tool_started": lambda event: f"tool {event['name']} {json_line(event['arguments'])}",
    "tool_finished": lambda event: f"tool {event.get('call_id', '')} " + ("failed" if event.get("is_error") else "done"),
    "permission_request": lambda event: f"permission asked for {event['tool']} {json_line(event['detail'])}",
    "status": lambda event: " ".join(filter(None, (event.get("word"), event.get("detail")))),
    "artifact": lambda event: f"made {event.get('name', '')} ({event.get('bytes', 0)} bytes)",
    "truncated": lambda event: f"{event['dropped_bytes']} bytes of {event['channel']} were dropped",
    "gap": lambda event: f"missing here: {counted(event['missing'], 'event')}",
}
