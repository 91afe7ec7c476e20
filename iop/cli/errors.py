"""What the `iop` command tells when it fails, and its exit codes (contract.md)."""

from __future__ import annotations

from iop.errors import IOPError

FAILED, USAGE, NOT_THERE, REFUSED, CANCELLED = 1, 2, 3, 4, 130

_EXIT_CODES = {
    "invalid_request": USAGE,
    "too_large": USAGE,
    "config_error": USAGE,
    "not_found": NOT_THERE,
    "no_such_run": NOT_THERE,
    "no_such_node": NOT_THERE,
    "no_such_target": NOT_THERE,
    "no_node": NOT_THERE,
    "policy_denied": REFUSED,
    "auth_failed": REFUSED,
    "forbidden": REFUSED,
    "queue_full": REFUSED,
    "queue_timeout": REFUSED,
    "draining": REFUSED,
    "cancelled": CANCELLED,
}


def exit_code(code: str) -> int:
    """The exit code for an error's code; 1 for all that has none of its own."""
    return _EXIT_CODES.get(code, FAILED)


class NoEdge(IOPError):
    """No edge is running here."""

    code = "no_edge"
    default_hint = ("Start one with `iop up`, or name a running one with --state DIR, or with IOP_URL and IOP_API_KEY in the "
                    "environment.")


class EdgeGone(IOPError):
    """The edge does not answer any more."""

    code = "edge_gone"
    retryable = True


class ApiError(IOPError):
    """The edge refused the request."""

    def __init__(self, status: int, error: dict[str, object]) -> None:
        super().__init__(str(error.get("message") or f"The edge answered with status {status}."),
                         hint=str(error.get("hint") or ""))
        self.status = status
        self.code = str(error.get("code") or "internal_error")  # type: ignore[misc]  # the edge's own word
        self.retryable = bool(error.get("retryable"))  # type: ignore[misc]
