"""The Date header of answers (RFC 9110 section 6.6.1)."""

from __future__ import annotations

import time
from email.utils import formatdate


class DateHeader:
    """Its value, made once a second."""

    def __init__(self) -> None:
        self._second = 0
        self._text = ""

    def __call__(self) -> str:
        second = int(time.time())
        if second != self._second:
            self._second, self._text = second, formatdate(second, usegmt=True)
        return self._text
