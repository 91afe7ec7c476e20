"""Lines and Server-Sent Events out of a byte stream that is cut anywhere. Pure."""

from __future__ import annotations

from iop.errors import UpstreamError

BOM = b"\xef\xbb\xbf"
LINE_BYTES = 8 * 1024 * 1024      # one line of a stream; a chunk with a whole image in it stays under this


class LineSplitter:
    """Complete lines, without their LF or CRLF (a lone CR is kept: JSON never contains one unescaped).

    Raises UpstreamError once a line is longer than `limit_bytes`. The pieces of an unfinished line are joined only when
    its end has come, so that a long line costs no more than its length.
    """

    def __init__(self, limit_bytes: int = LINE_BYTES) -> None:
        self._limit = limit_bytes
        self._pieces: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[bytes]:
        lines = data.split(b"\n")
        rest = lines.pop()
        if lines and self._pieces:
            self._pieces.append(lines[0])
            lines[0] = b"".join(self._pieces)
            self._pieces, self._size = [], 0
        if rest:
            self._pieces.append(rest)
            self._size += len(rest)
        if self._size > self._limit or (lines and max(map(len, lines)) > self._limit):
            raise UpstreamError(f"The backend sent a line of more than {self._limit} bytes, which is the limit of one line.")
        if b"\r" in data or (lines and lines[0].endswith(b"\r")):
            return [line.removesuffix(b"\r") for line in lines]
        return lines

    @property
    def is_empty(self) -> bool:
        """Nothing waits for its line's end."""
        return not self._pieces

    def finish(self) -> bytes:
        """What stands behind the last line's end."""
        rest = b"".join(self._pieces)
        self._pieces, self._size = [], 0
        return rest.removesuffix(b"\r")


class EventSplitter:
    """The data of Server-Sent Events (WHATWG HTML, "Server-sent events", read 2026-12); their names and ids are dropped:
    the APIs that name their events have the name in the data as well.

    An event may have several data lines; together they obey the limit of one line.
    """

    def __init__(self, limit_bytes: int = LINE_BYTES) -> None:
        self._lines = LineSplitter(limit_bytes)
        self._limit = limit_bytes
        self._data: list[bytes] = []
        self._size = 0
        self._begin: bytes | None = b""      # of the stream, as long as it may be a byte order mark
        self._after_cr = False               # a LF that comes now belongs to it

    def feed(self, data: bytes) -> list[bytes]:
        """The data of each event that has become complete."""
        if self._begin is not None:
            data = self._unmarked(self._begin + data)
        if self._after_cr or b"\r" in data:
            data = self._with_lf(data)
        if data.endswith(b"\n\n") and not self._data and self._lines.is_empty:
            plain = self._plain(data)
            if plain is not None:
                return plain
        found: list[bytes] = []
        for line in self._lines.feed(data):
            self._line(line, found)
        return found

    def _unmarked(self, data: bytes) -> bytes:
        if len(data) < len(BOM) and BOM.startswith(data):
            self._begin = data
            return b""
        self._begin = None
        return data.removeprefix(BOM)

    def _with_lf(self, data: bytes) -> bytes:
        """CR, LF and CRLF each end a line."""
        if not data:
            return data
        if self._after_cr and data.startswith(b"\n"):
            data = data[1:]
        self._after_cr = data.endswith(b"\r")
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _plain(self, data: bytes) -> list[bytes] | None:
        """The way of nearly every read: whole events of one data line each. None when it is not so."""
        if not data.startswith(b"data: ") or len(data) > self._limit:
            return None
        events = data[6:-2].split(b"\n\ndata: ")
        return events if data.count(b"\n") == 2 * len(events) else None

    def finish(self) -> list[bytes]:
        """At the end of the stream: the last event, also when its blank line is missing (many servers forget it)."""
        found: list[bytes] = []
        self._line(self._lines.finish(), found)
        self._line(b"", found)
        return found

    def _line(self, line: bytes, found: list[bytes]) -> None:
        if line.startswith(b"data:"):
            value = line[6:] if line[5:6] == b" " else line[5:]
            self._data.append(value)
            self._size += len(value)
            if self._size > self._limit:
                raise UpstreamError(f"The backend sent an event of more than {self._limit} bytes, which is the limit.")
        elif line == b"data":
            self._data.append(b"")
        elif not line and self._data:
            found.append(self._data[0] if len(self._data) == 1 else b"\n".join(self._data))
            self._data, self._size = [], 0
