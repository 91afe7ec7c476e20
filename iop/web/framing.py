"""Where the parts of an HTTP message end in a byte stream that is cut anywhere. Pure.

llhttp says what a message means; that it gets exactly the bytes of one, and of no more than a head may have, is seen to here.
"""

from __future__ import annotations

import re

from iop.errors import InvalidRequest
from iop.web.errors import HeadersTooLarge

HEADERS, HEADER_BYTES, HEAD_BYTES = 100, 8192, 65536

_REQUEST_LINE = re.compile(rb"(?:\r\n)*([A-Z]+ [^ \r\n]+ HTTP/[0-9]\.[0-9])\r\n")
_UPGRADE = re.compile(rb"\r\nupgrade:[^\r\n]*", re.IGNORECASE)
_BEGIN = re.compile(rb"(?:\r\n?)*(?:[A-Z]|\Z)")


def head_end(data: bytes) -> int:
    """Behind the empty line of a head; 0 while that has not come. Raises InvalidRequest, HeadersTooLarge."""
    begin = _BEGIN.match(data)
    if begin is None:                        # TLS, as a rule
        raise InvalidRequest()
    at = data.find(b"\r\n\r\n", begin.end())
    if at >= 0:
        return at + 4
    if len(data) > HEAD_BYTES:
        raise HeadersTooLarge(f"A head may have {HEAD_BYTES} bytes.")
    if len(data) - data.rfind(b"\n") > HEADER_BYTES + 2:
        raise _too_long()
    if b"\n" in data[begin.end():]:
        _request_line(data)
    return 0


def check_head(data: bytes, end: int) -> int:
    """Where the request line begins; before it, empty lines are passed over. Raises InvalidRequest, HeadersTooLarge."""
    begin = _request_line(data)
    if end - begin > HEADER_BYTES:
        if end - begin > HEAD_BYTES:
            raise HeadersTooLarge(f"A head may have {HEAD_BYTES} bytes.")
        if max(map(len, data[begin:end].split(b"\r\n"))) > HEADER_BYTES:
            raise _too_long()
    if data.count(b"\n", begin, end) > HEADERS + 2:
        raise HeadersTooLarge(f"A request may have {HEADERS} headers.")
    return begin


def _request_line(data: bytes) -> int:
    """One space between its parts: a parser that takes more reads another request than one that takes one."""
    found = _REQUEST_LINE.match(data)
    if found is None:
        raise InvalidRequest()
    return found.start(1)


def _too_long() -> HeadersTooLarge:
    return HeadersTooLarge(f"A header may have {HEADER_BYTES} bytes.")


def without_upgrade(head: bytes) -> bytes:
    """Nothing is upgraded to here; llhttp would take the head for a whole message, and its body for what comes after."""
    return _UPGRADE.sub(b"", head)


class BodyEnd:
    """Where a body in chunks can end: behind an empty line, wherever that is cut."""

    def __init__(self) -> None:
        self._tail = b""

    def find(self, data: bytes, start: int = 0) -> int:
        """How far to read on with `data`, from `start`; what stands behind that may be another message."""
        if self._tail:                           # of the read before this one
            at = (self._tail + data[start:start + 3]).find(b"\r\n\r\n")
            if at >= 0:
                stop, self._tail = start + at + 4 - len(self._tail), b""
                return stop
        at = data.find(b"\r\n\r\n", start)
        if at >= 0:
            self._tail = b""
            return at + 4
        self._tail = (self._tail + data[max(start, len(data) - 3):])[-3:]
        return len(data)
