"""Where a field of a multipart form stands in its bytes (RFC 7578). Pure; the form itself is never taken apart or made anew.

The edge reads the model's name there, and the node writes the backend's in its place; both must find the same one, so what
could be read in two ways is refused.
"""

from __future__ import annotations

import re

from iop.errors import InvalidRequest

FORM = "multipart/form-data"
MAX_FIELD_BYTES = 4096           # of a field that is read here
MAX_PARTS = 1000
_HEAD_BYTES = 16 * 1024          # of one part

_BOUNDARY = re.compile(r';\s*boundary=(?:"([^"\r\n]{1,70})"|([^\s";,]{1,70}))', re.IGNORECASE)
_NAME = re.compile(rb';[ \t]*name=(?:"([^"\r\n]*)"|([^\s";]+))', re.IGNORECASE)
_DISPOSITION = re.compile(rb"^content-disposition:[ \t]*form-data([^\r\n]*)$", re.IGNORECASE | re.MULTILINE)


def is_form(content_type: str) -> bool:
    return content_type.partition(";")[0].strip().lower() == FORM


def find_field(body: bytes, content_type: str, name: str) -> slice | None:
    """Where the value of the field `name` stands in `body`; None when the form has none. Raises InvalidRequest for what is
    no form, and where the field stands twice."""
    found = [value for part_name, value in _parts(body, _boundary(content_type)) if part_name == name.encode()]
    if len(found) > 1:
        raise InvalidRequest(f"The form has the field {name} twice.")
    if found and found[0].stop - found[0].start > MAX_FIELD_BYTES:
        raise InvalidRequest(f"The form's field {name} has more than {MAX_FIELD_BYTES} bytes.")
    return found[0] if found else None


def field_text(body: bytes, content_type: str, name: str) -> str | None:
    """The value of a field; None when the form has none. Raises InvalidRequest."""
    place = find_field(body, content_type, name)
    if place is None:
        return None
    try:
        return body[place].decode()
    except UnicodeDecodeError:
        raise InvalidRequest(f"The form's field {name} is not UTF-8.") from None


def _boundary(content_type: str) -> bytes:
    found = _BOUNDARY.findall(content_type) if is_form(content_type) else []
    if len(found) != 1:
        raise InvalidRequest(f"The body must be {FORM}, with one boundary in its Content-Type.")
    return b"--" + (found[0][0] or found[0][1]).encode("latin-1", "replace")


def _parts(body: bytes, dashes: bytes) -> list[tuple[bytes, slice]]:
    """The name of each part, and where its content stands."""
    parts: list[tuple[bytes, slice]] = []
    at = 0 if body.startswith(dashes) else body.find(b"\r\n" + dashes) + 2
    if at == 1:
        raise InvalidRequest("The form does not have its own boundary in it.")
    while True:
        at += len(dashes)
        if body[at:at + 2] == b"--":
            return parts
        head_at = body.find(b"\n", at) + 1
        content_at = body.find(b"\r\n\r\n", at, at + _HEAD_BYTES) + 4
        end = body.find(b"\r\n" + dashes, content_at - 4)
        if head_at == 0 or body[at:head_at].strip() or content_at == 3 or end < 0 or len(parts) == MAX_PARTS:
            raise InvalidRequest("The form is broken: a part has no head or no end, or there are too many.")
        parts.append((_part_name(body[head_at:content_at - 4]), slice(content_at, max(content_at, end))))
        at = end + 2


def _part_name(head: bytes) -> bytes:
    """The name in a part's Content-Disposition. Raises InvalidRequest unless there is exactly one."""
    lines = _DISPOSITION.findall(head.replace(b"\r\n", b"\n"))
    names = _NAME.findall(lines[0]) if len(lines) == 1 else []
    if len(names) != 1:
        raise InvalidRequest("Each part of a form has one Content-Disposition with one name.")
    return names[0][0] or names[0][1]
