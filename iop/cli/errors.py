"""What goes wrong between the `iop` command and the edge or node that it speaks to."""

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


class StillRunning(IOPError):
    """The node still has runs."""

    code = "still_running"
    retryable = True
    default_hint = "It stays drained; `iop drain NODE --wait` waits on, `iop drain NODE --off` gives it runs again."


class NotReady(IOPError):
    """The node is not ready again in time."""

    code = "not_ready"
    default_hint = "Its log says why; `iop nodes` shows it once it is back."


class ProcessesLeft(IOPError):
    """Processes of the node cannot be ended."""

    code = "processes_left"
    default_hint = "They wait for a disk, mostly; try again, or see what `ps` says of them."


class ApiError(IOPError):
    """The edge refused the request."""

    def __init__(self, status: int, error: dict[str, object]) -> None:
        super().__init__(str(error.get("message") or f"The edge answered with status {status}."),
                         hint=str(error.get("hint") or ""))
        self.status = status
        self.code = str(error.get("code") or "internal_error")  # the edge's own word
        self.retryable = bool(error.get("retryable"))
