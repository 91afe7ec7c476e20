"""Rows of the history, as plain values: what the store returns and a role keeps. No SQL here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from iop.events import outcome_dict, rfc3339, totals_dict, usage_dict
from iop.proto import run_pb2


class RunRecord(msgspec.Struct, kw_only=True):
    """One run, as history keeps it. Times are Unix microseconds, 0 for not yet."""

    run_id: str
    state: str
    adapter: str
    target: str
    node_id: str = ""
    attempt: int = 0
    created_us: int = 0
    placed_us: int = 0
    started_us: int = 0
    ended_us: int = 0
    session_id: str = ""
    priority: int = 0
    face: str = ""
    principal: str = ""
    request_id: str = ""
    idempotency_key: str | None = None
    request: bytes = b""       # the packed RunRequest
    outcome: bytes = b""       # the packed Outcome, once ended
    outcome_code: str = ""     # its code again, to search for
    output_text: str = ""      # the first 16 KiB of text and standard output, to search for
    prompt_text: str = ""      # the first 4 KiB of the prompt, to search for
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cancel_us: int = 0         # when somebody asked for its end
    pin: str = ""              # the node that it must go to
    incomplete: int = 0        # 1: events of it are lost, and a gap stands in their place
    alias: str = ""            # the name that it was asked by; all targets that carry it will do
    placement: str = ""        # why it went to its node, in a few words
    cached_tokens: int = 0     # of the prompt's
    first_output_us: int = 0   # kept with the ending; 0 also where the edge was started again before it
    cost_micros: int = 0       # millionths of a dollar
    forgotten: int = 0         # when a client had the model APIs forget it; the record stays

    @property
    def ended(self) -> bool:
        return self.ended_us != 0

    def figures(self) -> dict[str, float]:
        """How long it took and what it used, for those who add up ended runs (seconds, tokens); without what is not known."""
        told: dict[str, float] = {"prompt_tokens": self.prompt_tokens, "completion_tokens": self.completion_tokens,
                                  "cached_tokens": self.cached_tokens, "whole_s": self.ended_us - self.created_us}
        if self.placed_us:
            told["queue_s"] = self.placed_us - self.created_us
        if self.first_output_us:
            told["first_output_s"] = self.first_output_us - self.created_us
            if self.completion_tokens > 1:
                told["token_s"] = (self.ended_us - self.first_output_us) / (self.completion_tokens - 1)
        return {name: round(value / 1e6, 6) if name.endswith("_s") else value for name, value in told.items() if value > 0}

    def as_dict(self) -> dict[str, object]:
        """The run as the contract shows it."""
        outcome = run_pb2.Outcome.FromString(self.outcome) if self.outcome else None
        return {
            "run_id": self.run_id, "state": self.state, "adapter": self.adapter, "target": self.target,
            "alias": self.alias or None,
            "node_id": self.node_id or None, "placement": self.placement or None, "attempt": self.attempt,
            "session_id": self.session_id or None,
            "created_at": rfc3339(self.created_us), "placed_at": rfc3339(self.placed_us),
            "started_at": rfc3339(self.started_us), "first_output_at": rfc3339(self.first_output_us),
            "ended_at": rfc3339(self.ended_us),
            "outcome": outcome_dict(outcome) if outcome is not None else None,
            "usage": usage_dict(outcome.usage) if outcome is not None and outcome.HasField("usage") else None,
            "totals": totals_dict(outcome.totals) if outcome is not None and outcome.HasField("totals") else None,
            "incomplete": bool(self.incomplete),
            "source": {"face": self.face, "principal": self.principal, "request_id": self.request_id},
        }


class BatchRow(NamedTuple):
    """One batch of a run as history keeps it, with the columns of the run that it changes."""

    run_id: str
    attempt: int
    first_seq: int
    last_seq: int
    packed: bytes              # an encoded Frame, or consecutive ones (iop.edge.packing)
    changes: Mapping[str, object] | None = None


class RunQuery(msgspec.Struct, kw_only=True, frozen=True):
    """Which runs to list; empty means any."""

    state: str = ""
    adapter: str = ""
    target: str = ""
    node_id: str = ""
    session_id: str = ""
    principal: str = ""
    since_us: int = 0
    limit: int = 50
    cursor: str = ""           # as the last answer gave it


GROUPINGS = ("key", "model", "node")


class UsageQuery(msgspec.Struct, kw_only=True, frozen=True):
    """What runs used that were created in a time. `by`: some of GROUPINGS, none for one sum."""

    by: tuple[str, ...] = ()
    since_us: int = 0
    until_us: int = 0          # 0: until now
    principal: str = ""        # only this one's


class UsageRow(msgspec.Struct, kw_only=True):
    """What runs used that have the same key (its owner), model and node, as far as those were asked for."""

    key: str = ""
    model: str = ""            # adapter/target
    node: str = ""             # "": they never had one
    runs: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    cost_micros: int = 0       # millionths of a dollar

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    def as_dict(self, by: Sequence[str]) -> dict[str, object]:
        return {name: getattr(self, name) for name in by} | {
            "runs": self.runs, "prompt_tokens": self.prompt_tokens, "completion_tokens": self.completion_tokens,
            "total_tokens": self.tokens, "cached_tokens": self.cached_tokens, "cost_usd": self.cost_micros / 1e6}


class SessionRecord(msgspec.Struct, kw_only=True):
    """A conversation that later runs continue; it lives on one node."""

    session_id: str
    node_id: str
    adapter: str
    target: str
    created_us: int
    used_us: int
    closed_us: int = 0
    runs: int = 0

    def as_dict(self) -> dict[str, object]:
        """The session as the contract shows it."""
        return {"session_id": self.session_id, "node_id": self.node_id, "adapter": self.adapter, "target": self.target,
                "runs": self.runs, "created_at": rfc3339(self.created_us), "used_at": rfc3339(self.used_us),
                "closed_at": rfc3339(self.closed_us)}


class TargetView(msgspec.Struct, kw_only=True):
    """A target that a node offers."""

    adapter: str
    target: str
    aliases: list[str]
    concurrency: int
    running: int
    ready: bool
    detail: str
    retry_safe: bool = False   # the target's own word; a run may say otherwise
    takes_input: bool | None = None   # while a run of it is under way; None: its node has not told
    warm: bool | None = None   # the model is in its backend's memory; None: not known
    weight: float = 1.0        # its share where several nodes offer the same
    context_tokens: int = 0    # the longest prompt and answer together; 0: not known


class NodeView(msgspec.Struct, kw_only=True):
    """One node as the edge knows it now."""

    node_id: str
    state: str                 # up | down
    draining: bool
    labels: dict[str, str]
    targets: list[TargetView]
    running: int = 0
    version: str = ""
    policy_mode: str = ""
    remote: str = ""
    since_us: int = 0          # of the state
    epoch: int = 0
    facts: dict[str, str] = {}
    load: dict[str, Any] = {}  # as its MachineLoad: busy, memory_used_bytes, memory_total_bytes, gpus; {}: not known
    config_faults: list[str] = []

    def as_dict(self) -> dict[str, object]:
        view = msgspec.structs.asdict(self)
        view["targets"] = [msgspec.structs.asdict(target) for target in self.targets]
        view["since"] = rfc3339(view.pop("since_us"))
        return view


class ModelEntry(msgspec.Struct, kw_only=True, frozen=True):
    """A name at the model APIs."""

    name: str
    adapter: str
    target: str
    created_us: int
    ready: bool
    warm: bool | None = None   # some node has it in memory; None: not known
    context_tokens: int = 0    # the longest prompt and answer together; 0: not known
