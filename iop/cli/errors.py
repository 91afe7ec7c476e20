"""What goes wrong between the `iop` command and an edge."""

from __future__ import annotations

from iop.errors import IOPError


class NoEdge(IOPError):
    """No edge is running here."""

    code = "no_edge"
    default_hint = ("Start one with `iop up`, or name a running one with --state DIR, or with IOP_URL and IOP_API_KEY in the "
                    "environment.")


class SystemFault(IOPError):
    """The system does not allow it."""

    code = "system_error"


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
