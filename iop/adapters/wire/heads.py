"""How long a reply's head may be, counted before anybody parses it. Pure."""

from __future__ import annotations

import re

from iop.errors import UpstreamError

HEAD_BYTES = 64 * 1024
_END = re.compile(rb"\n\r?\n")


class HeadMeter:
    """Watches the bytes of one reply until its head has ended; heads of 1xx replies count together with the real one."""

    def __init__(self, limit_bytes: int = HEAD_BYTES) -> None:
        self._limit = limit_bytes
        self._count = 0
        self._window = b""       # begins with the status line's start, then keeps only what may hold the end's first half
        self._informational = False
        self._begun = False
        self.ended = False

    @property
    def untouched(self) -> bool:
        """No byte of the reply has come."""
        return not self._begun and not self._count and not self._window

    def feed(self, data: bytes) -> None:
        """Raises UpstreamError when the head has no end within the limit."""
        window = self._window + data
        while not self.ended:
            if not self._begun:
                if len(window) < 12:
                    break
                self._begun = True
                self._informational = window[:5] == b"HTTP/" and window[9:10] == b"1"
            found = _END.search(window)
            if found is None:
                self._count += max(0, len(window) - 3)
                window = window[-3:]
                break
            self._count += found.end()
            window = window[found.end():]
            self._begun = False
            self.ended = not self._informational
        self._window = window
        if self._count > self._limit:
            raise UpstreamError(f"The backend sent more than {self._limit} bytes of response headers, which is the limit.")
