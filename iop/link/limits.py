"""How much of anything a link takes: numbers that both sides agree on in Welcome, and what they may be."""

from __future__ import annotations

from iop.proto.link_pb2 import LinkLimits

GREETING_BYTES = 4096                # a frame before Welcome: a Hello needs some 200 bytes
FRAME_BYTES = 1024 * 1024            # and after it; Int32StringReceiver's buffering is quadratic beyond (16 MiB: 0.6 s)
PART_BYTES = 256 * 1024
PART_OVERHEAD = 64                   # of the Part and Frame around a piece: 32 bytes at most
TRANSFER_BYTES = 64 * 1024 * 1024    # an HTTP body of 32 MiB, and what JSON and base64 make of it
TRANSFERS = 4                        # under way at once, from one peer
PINGS_A_SWEEP = 100                  # a peer that asks more often floods

_DEFAULTS = {
    "frame_bytes": FRAME_BYTES,
    "part_bytes": PART_BYTES,
    "transfer_bytes": TRANSFER_BYTES,
    "run_window_bytes": 1024 * 1024,
    "link_window_bytes": 8 * 1024 * 1024,
    "ping_after_s": 5.0,
    "dead_after_s": 12.0,
}
# What a peer may ask of us: lowest and highest.
_RANGES = {
    "frame_bytes": (GREETING_BYTES, FRAME_BYTES),
    "part_bytes": (1024, FRAME_BYTES - PART_OVERHEAD),
    "transfer_bytes": (GREETING_BYTES, 1024 * 1024 * 1024),
    "run_window_bytes": (4096, 1024 * 1024 * 1024),
    "link_window_bytes": (4096, 1024 * 1024 * 1024),
    "ping_after_s": (1.0, 600.0),
    "dead_after_s": (2.0, 1800.0),
}


def default_limits(**changes: float) -> LinkLimits:
    """The default limits, with some changed."""
    return agreed(LinkLimits(**{**_DEFAULTS, **changes}))  # type: ignore[arg-type]


def agreed(offered: LinkLimits) -> LinkLimits:
    """What holds on a link where `offered` was named: absent numbers are the defaults, absurd ones the nearest allowed."""
    values = {name: _within(name, getattr(offered, name) or default) for name, default in _DEFAULTS.items()}
    values["part_bytes"] = min(values["part_bytes"], values["frame_bytes"] - PART_OVERHEAD)
    values["dead_after_s"] = max(values["dead_after_s"], values["ping_after_s"] + 1.0)
    return LinkLimits(**values)  # type: ignore[arg-type]


def _within(name: str, value: float) -> float:
    low, high = _RANGES[name]
    if value != value:  # NaN
        return _DEFAULTS[name]
    return min(max(value, low), high)
