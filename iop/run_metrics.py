"""Figures of runs that have ended, for Prometheus: counted once a run, from what its ending tells on the bus.

Names are OpenTelemetry's for generative AI where it has one (semantic-conventions-genai, development status 2026-12), with
its dots as underscores and the unit behind; `iop_` where it has none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from prometheus_client.registry import CollectorRegistry

from iop.series import Spread, Tally

_SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92, 327.68)
_TOKEN_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2.5)     # of one token
_TARGET = ["adapter", "target"]


class RunMetrics:
    """`capped(adapter, target)` bounds the values of the labels."""

    def __init__(self, registry: CollectorRegistry, capped: Callable[[str, str], tuple[str, str]]) -> None:
        self._capped = capped
        self._registry = registry
        self._ended = Tally("iop_runs_ended", "Runs that have ended, by outcome code.", ["code", *_TARGET], registry)
        self._queue = self._histogram("iop_run_queue_time_seconds", "From accepted to placed on a node.")
        self._first = self._histogram("gen_ai_server_time_to_first_token_seconds", "From accepted to the first output.")
        self._token = self._histogram("gen_ai_server_time_per_output_token_seconds",
                                      "Between two tokens, on average over a run: from its first output to its end.",
                                      _TOKEN_SECONDS)
        self._whole = self._histogram("gen_ai_server_request_duration_seconds", "From accepted to ended.")
        self._tokens = Tally("gen_ai_client_token_usage", "Tokens that backends have counted.",
                              ["gen_ai_token_type", *_TARGET], registry)

    def _histogram(self, name: str, what: str, buckets: tuple[float, ...] = _SECONDS) -> Spread:
        return Spread(name, what, _TARGET, buckets, self._registry)

    def ended(self, code: str, told: Mapping[str, Any]) -> None:
        """Count a run. `told`: adapter, target and the figures of its ending (iop.records.RunRecord.figures)."""
        of = self._capped(str(told.get("adapter", "")), str(told.get("target", "")))
        self._ended.add((code, *of))
        for family, name in ((self._queue, "queue_s"), (self._first, "first_output_s"), (self._token, "token_s"),
                             (self._whole, "whole_s")):
            if (value := told.get(name)) is not None:
                family.observe(of, value)
        for kind, name in (("input", "prompt_tokens"), ("output", "completion_tokens"), ("input_cached", "cached_tokens")):
            if told.get(name):
                self._tokens.add((kind, *of), told[name])
