"""Which headers go to a backend beside those of the exchange itself. Pure."""

from __future__ import annotations

import re

from iop.proto.run_pb2 import RunRequest

NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
# What the node says itself: the body's kind and length, and whatever concerns the connection (RFC 9110, 7.6.1).
EXCHANGE = frozenset(("host", "content-length", "content-type", "transfer-encoding", "connection", "accept-encoding",
                      "expect", "upgrade", "te", "trailer", "keep-alive", "proxy-authorization", "proxy-connection"))
_OURS = EXCHANGE | {"authorization", "x-api-key", "cookie"}      # the client has shown those to the edge


def passed_headers(request: RunRequest) -> dict[str, str]:
    """The client's headers that go on to the backend."""
    return {name: value for name, value in request.headers.items() if name.lower() not in _OURS
            and NAME.fullmatch(name) and value.isprintable() and value.isascii()}
