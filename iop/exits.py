"""The exit codes of the `iop` command and of the console's one-shots, and of the services."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

FAILED, USAGE, NOT_THERE, REFUSED, NOT_YET, CANCELLED = 1, 2, 3, 4, 5, 130
CONFIG_REFUSED = 78      # of the services: EX_CONFIG of sysexits.h, starting again cannot help

_EXIT_CODES = {
    "": 0, "ok": 0,
    "invalid_request": USAGE, "too_large": USAGE, "config_error": USAGE,
    "not_found": NOT_THERE, "no_such_run": NOT_THERE, "no_such_node": NOT_THERE, "no_such_target": NOT_THERE,
    "no_node": NOT_THERE,
    "policy_denied": REFUSED, "auth_failed": REFUSED, "forbidden": REFUSED, "queue_full": REFUSED, "queue_timeout": REFUSED,
    "draining": REFUSED, "conflict": REFUSED, "rate_limit_exceeded": REFUSED, "insufficient_quota": REFUSED,
    "cancelled": CANCELLED,
}


def exit_code(code: str) -> int:
    """The exit code that tells an error's code; 1 for all that has none of its own."""
    return _EXIT_CODES.get(code, FAILED)


def verified(found: Mapping[str, Any]) -> int:
    """The exit code that tells what verifying a run has found (iop.wholeness)."""
    if found["whole"]:
        return 0
    return FAILED if found["faults"] or found["gaps"] else NOT_YET
