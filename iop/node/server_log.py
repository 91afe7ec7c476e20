"""What a model server says: kept in a file that rotates, its last lines for whoever asks why, how far it has loaded."""

from __future__ import annotations

import os
import re
from collections import deque

FILE_BYTES = 1024 * 1024     # then the file becomes log.1, and the one before that goes
LINES = 6                    # of its last words
LINE_CHARACTERS = 200
PARTIAL_BYTES = 4096         # of a line without an end

_LOADING = re.compile(r"load|shard|tensor|weight|download|progress", re.IGNORECASE)
_PERCENT = re.compile(r"(?<![\d.])(\d{1,3})(?:\.\d+)?\s?%")
_DOTS = re.compile(r"\.{3,100}")                  # llama.cpp prints a dot for each hundredth of the tensors
_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


class ServerLog:
    """`folder` exists. A disk that takes nothing costs the file, not the server."""

    def __init__(self, folder: str) -> None:
        self.path = os.path.join(folder, "log")
        self.progress = 0.0                       # 0 to 1, as its lines tell; 0: they do not
        self._lines: deque[str] = deque(maxlen=LINES)
        self._partial = b""
        self._file = -1
        self._size = 0

    def write(self, data: bytes) -> None:
        try:
            self._to_file(data)
        except OSError:
            self.close()
        *lines, partial = (self._partial + data).replace(b"\r", b"\n").split(b"\n")
        self._partial = partial[-PARTIAL_BYTES:]
        for line in lines:
            self._heard(line)
        self._see_progress(self._partial)

    def begin(self) -> None:
        """A new start of the server: what the last one said is no answer any more."""
        self._lines.clear()
        self._partial = b""
        self.progress = 0.0

    def last_words(self) -> str:
        """The last lines, in one; empty when it said nothing."""
        return " | ".join([*self._lines, *filter(None, [_clean(self._partial)])][-LINES:])

    @property
    def latest(self) -> str:
        return self._lines[-1] if self._lines else _clean(self._partial)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _heard(self, line: bytes) -> None:
        text = _clean(line)
        if text:
            self._lines.append(text)
            self._see_progress(line)

    def _see_progress(self, line: bytes) -> None:
        self.progress = progress_in(line.decode("utf-8", "replace")) or self.progress

    def _to_file(self, data: bytes) -> None:
        if self._file < 0:
            self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            self._size = os.fstat(self._file).st_size
        elif self._size > FILE_BYTES:
            self.close()
            os.replace(self.path, self.path + ".1")
            self._to_file(data)
            return
        self._size += os.write(self._file, data)


def progress_in(line: str) -> float:
    """How far it is, 0 to 1, where a line says so: `Loading shards:  50% Completed`, or llama.cpp's row of dots. 0: it does
    not."""
    found = _PERCENT.findall(line)
    if found and _LOADING.search(line):
        return min(int(found[-1]), 100) / 100
    dots = _DOTS.fullmatch(line.strip())
    return len(dots[0]) / 100 if dots else 0.0


def _clean(line: bytes) -> str:
    text = _COLOUR.sub("", line.decode("utf-8", "replace"))
    return "".join(character if character.isprintable() else " " for character in text).strip()[:LINE_CHARACTERS]
