"""Text out of bytes that are cut anywhere, without losing one. Pure."""

from __future__ import annotations

import codecs


class Utf8Stream:
    """One channel of a program's output.

    `feed` gives (text, exact): `exact` is empty unless the text had to replace bytes that are no UTF-8; then it is the
    bytes. So the joined `exact or text.encode()` is what was fed, less at most three bytes of a character whose rest has
    not come yet (`tail`); `finish` gives those.
    """

    def __init__(self, tail: bytes = b"") -> None:
        self.tail = tail

    def feed(self, data: bytes) -> tuple[str, bytes]:
        return self._decode(data, False)

    def finish(self) -> tuple[str, bytes]:
        return self._decode(b"", True)

    def _decode(self, data: bytes, final: bool) -> tuple[str, bytes]:
        if self.tail:
            data = self.tail + data
        try:
            text, used = codecs.utf_8_decode(data, "strict", final)
            exact = b""
        except UnicodeDecodeError:
            text, used = codecs.utf_8_decode(data, "replace", final)
            exact = data[:used]
        self.tail = data[used:]
        return text, exact
