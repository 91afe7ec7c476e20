"""What deliberate errors tell: a stable code, whether trying again can help, and the sentence an operator reads.

Those of links are in iop.link.errors, those of the `iop` command itself in iop.cli.errors. The docstring of a class is the
sentence shown when none is given. Codes are part of the contract: they stand in run endings, API errors and exit codes, and
are never renamed.
"""

from __future__ import annotations

from typing import ClassVar


class IOPError(Exception):
    """Something went wrong inside IOP; the log of the process has the details under this error's id."""

    code: str = "internal_error"
    retryable: bool = False
    default_hint: ClassVar[str] = ""

    def __init__(self, message: str = "", *, hint: str = "") -> None:
        self.message = message or " ".join((type(self).__doc__ or self.code).split())
        self.hint = hint or self.default_hint
        self.retry_after_s = 0.0         # when trying again may help; 0: not known
        super().__init__(self.message)

    @property
    def sentence(self) -> str:
        """The message and what to do next, in one line."""
        return f"{self.message} {self.hint}".strip()

    def as_dict(self) -> dict[str, object]:
        """The error object of the management API."""
        return {"code": self.code, "message": self.message, "retryable": self.retryable, "hint": self.hint}


class InvalidRequest(IOPError):
    """The request cannot be understood."""

    code = "invalid_request"


class NotFound(IOPError):
    """There is no such thing here."""

    code = "not_found"


class NoSuchRun(NotFound):
    """There is no run with this id."""

    code = "no_such_run"
    default_hint = "List the runs with `iop runs`."


class NoSuchNode(NotFound):
    """There is no node with this id."""

    code = "no_such_node"
    default_hint = "List the nodes with `iop nodes`."


class NoSuchTarget(NotFound):
    """No node offers this adapter and target."""

    code = "no_such_target"
    default_hint = "List what the nodes offer with `iop nodes`, or declare the target in edge.yaml."


class AuthFailed(IOPError):
    """The token or key is not known here."""

    code = "auth_failed"
    default_hint = "Make one where the edge runs: `iop keys new api NAME`, or `iop keys new node ID` for a node."


class Forbidden(IOPError):
    """This key does not carry the scope that the operation needs."""

    code = "forbidden"


class PolicyDenied(IOPError):
    """The node's own policy does not allow this."""

    code = "policy_denied"
    default_hint = "The owner of the machine decides this in node.yaml, under `policy`."


class Conflict(IOPError):
    """This does not fit what is there already."""

    code = "conflict"


class TooLarge(IOPError):
    """This is larger than the limit."""

    code = "too_large"


class NoNode(IOPError):
    """The target is known, but no node that offers it is ready."""

    code = "no_node"
    retryable = True
    default_hint = "See `iop nodes`; a run that waits for a node can be submitted with a longer queue limit."


class QueueFull(IOPError):
    """The queue is full."""

    code = "queue_full"
    retryable = True
    default_hint = "Try again when runs have ended, or raise queue.limit in edge.yaml."


class RateLimited(IOPError):
    """The key has used up what it may ask in a minute."""

    code = "rate_limit_exceeded"
    retryable = True
    default_hint = "Try again in a moment; `iop keys set` changes what a key may use."


class QuotaExhausted(IOPError):
    """The key has used up its budget."""

    code = "insufficient_quota"
    default_hint = "Trying again does not help before the next day or month; `iop keys set` changes what a key may use."


class QueueTimeout(IOPError):
    """The run waited for a free slot longer than its queue limit."""

    code = "queue_timeout"
    retryable = True


class StartTimeout(IOPError):
    """The run was placed, but had not started by its limit."""

    code = "start_timeout"
    retryable = True


class FirstOutputTimeout(IOPError):
    """No output came within the run's limit for the first."""

    code = "first_output_timeout"
    retryable = True


class RunTimeout(IOPError):
    """The run took longer than its limit."""

    code = "run_timeout"


class IdleTimeout(IOPError):
    """The run was silent for longer than its limit."""

    code = "idle_timeout"
    retryable = True


class OutputLimit(IOPError):
    """The run produced more output than its limit."""

    code = "output_limit"


class AdapterError(IOPError):
    """The adapter could not carry out the run."""

    code = "adapter_error"


class ProgramFailed(AdapterError):
    """The program ended with a failure of its own."""

    code = "program_failed"


class UpstreamError(IOPError):
    """The model backend refused or broke the request."""

    code = "upstream_error"

    def __init__(self, message: str = "", *, hint: str = "", status: int = 0, body: bytes = b"",
                 retryable: bool = False, retry_after_s: float = 0.0) -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.body = body
        self.retry_after_s = retry_after_s  # what the backend asked for; 0: nothing
        self.retryable = retryable  # here it depends on the status


class NodeLost(IOPError):
    """The node did not come back in time; what it still reports is kept apart."""

    code = "node_lost"
    retryable = True


class HistoryGap(IOPError):
    """Events of the run are missing from the history, and its node does not have them any more."""

    code = "history_gap"
    default_hint = "This is what a history restored from an older copy looks like."


class NodeRestarted(IOPError):
    """The node was started again while it was driving this run."""

    code = "node_restarted"
    retryable = True


class SupervisorLost(IOPError):
    """The process that held the program was killed; what is known of the program stands beside this."""

    code = "supervisor_lost"


class SpoolCorrupt(IOPError):
    """The node's spool is damaged in the middle; its file is kept, and nothing behind the damage can be told."""

    code = "spool_corrupt"


class Cancelled(IOPError):
    """The run was cancelled."""

    code = "cancelled"


class Draining(IOPError):
    """This process is draining and takes no new work."""

    code = "draining"
    retryable = True


class HistoryUnavailable(IOPError):
    """The history cannot be written now; running work goes on, new work is refused."""

    code = "history_unavailable"
    retryable = True
    default_hint = "Look at the database's disk and connection; the edge recovers by itself."


class HistoryConflict(IOPError):
    """The history holds other events under this run's numbers, or can never take these; what it has is not overwritten."""

    code = "history_conflict"
    default_hint = "Was the database restored, or is another edge writing to it? Nothing more of this run is stored."


class CommandTimeout(IOPError):
    """The node did not answer the command in time."""

    code = "command_timeout"
    retryable = True


class ConfigError(IOPError):
    """The configuration cannot be used."""

    code = "config_error"
