"""How many tokens a backend says it read and wrote. Pure."""

from __future__ import annotations

from iop.proto.run_pb2 import Usage

MOST = 1 << 40       # of one run; who says more does not count, and history could not add it up


def counted(tokens: int | None) -> int:
    """A count, or 0 where it can be none."""
    return tokens if tokens is not None and 0 < tokens <= MOST else 0


def usage_of(prompt: int | None, completion: int | None = 0, *, total: int | None = 0, cached: int | None = 0) -> Usage:
    """`total` where the backend told one; else the sum."""
    read, written = counted(prompt), counted(completion)
    return Usage(prompt_tokens=read, completion_tokens=written, total_tokens=counted(total) or read + written,
                 cached_tokens=counted(cached))
