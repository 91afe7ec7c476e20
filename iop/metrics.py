"""Figures for Prometheus. They watch: the bus, the edge's health and nodes, its links, the site's answers; the core calls
none of it.

Label values come from the configuration and from enumerations only, and no label has more than 200 of them: what is more
is counted under `other`.
"""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import msgspec
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from twisted.internet.defer import Deferred, execute
from twisted.internet.threads import deferToThreadPool

from iop.interfaces import IEdgeService
from iop.proto import node_pb2
from iop.run_metrics import RunMetrics
from iop.series import Spread, Tally

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
MOST_VALUES = 200
MOST_GPUS = 16            # of one node
OTHER = "other"
_SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class Capped:
    """The values of one label: the first 200 keep their names."""

    def __init__(self, most: int = MOST_VALUES) -> None:
        self._known: set[str] = set()
        self._most = most

    def __call__(self, value: str) -> str:
        if value in self._known:
            return value
        if len(self._known) >= self._most:
            return OTHER
        self._known.add(value)
        return value


class LinkCounts(Protocol):
    """What a listener for links counts, by code."""

    @property
    def refused(self) -> Mapping[str, int]: ...

    @property
    def protocol_errors(self) -> Mapping[str, int]: ...


class _Kept(Collector):
    """Gauges that were collected on the reactor's thread, for a rendering on another."""

    def __init__(self) -> None:
        self.families: list[Metric] = []

    def collect(self) -> Iterator[Metric]:
        return iter(self.families)


class Metrics:
    """One process's figures. With a `reactor`, a scrape is rendered on its thread pool: 10,000 series take 400 ms."""

    def __init__(self, edge: IEdgeService, reactor: Any = None, links: LinkCounts | None = None) -> None:
        self._edge = edge
        self._links = links
        self._reactor = reactor
        self.registry = CollectorRegistry()
        self._kept = _Kept()
        self.registry.register(self._kept)
        self._http = Tally("iop_http_requests", "HTTP requests by route and status.", ["route", "status"], self.registry)
        self._http_seconds = Spread("iop_http_request_duration_seconds", "From the head of a request to its last byte.",
                                    ["route"], _SECONDS, self.registry)
        self._first_output = Spread("iop_http_time_to_first_output_seconds",
                                    "From the head of a request to the first output of its stream.", ["route"], _SECONDS,
                                    self.registry)
        self._runs = RunMetrics(self.registry, lambda adapter, target: (self._adapter(adapter), self._target(target)))
        self._events = Tally("iop_lifecycle_events", "Lifecycle events by kind.", ["kind"], self.registry)
        self._code, self._adapter, self._target, self._kind, self._node = Capped(), Capped(), Capped(), Capped(), Capped()
        self._stop: Callable[[], object] | None = None

    def start(self) -> None:
        """Begin to watch the bus."""
        self._stop = self._edge.watch(self.happened)

    def stop(self) -> None:
        if self._stop is not None:
            self._stop()
            self._stop = None

    def happened(self, event: node_pb2.EdgeNodeEvent) -> None:
        """Count a lifecycle event; a run's ending tells its figures in its detail."""
        kind = event.kind
        self._events.add((self._kind(kind),))
        if kind == "run_ended":
            detail = _detail(event)
            self._runs.ended(self._code(str(detail.get("code", ""))), detail)

    def http_answered(self, route: str, method: bytes, status: int, seconds: float) -> None:
        """Count an answer. `route` is the table's pattern, so its values are as many as there are routes."""
        route = route or OTHER
        self._http.add((route, str(status)))
        self._http_seconds.observe((route,), seconds)

    def http_streaming(self, route: str, seconds: float) -> None:
        """A stream has its first output."""
        self._first_output.observe((route,), seconds)

    def render(self) -> Deferred[bytes]:
        """The text of a scrape: read here, rendered on a thread."""
        self._kept.families = self._collected()
        if self._reactor is None:
            return execute(generate_latest, self.registry)
        return deferToThreadPool(self._reactor, self._reactor.getThreadPool(), generate_latest, self.registry)

    def _collected(self) -> list[Metric]:
        health: dict[str, Any] = self._edge.health()
        return [
            GaugeMetricFamily("iop_ready", "1 when the edge takes work.", float(bool(health["ready"]))),
            GaugeMetricFamily("iop_reactor_lag_seconds", "How late the reactor's timers are.",
                              health["reactor_lag_ms"] / 1000),
            GaugeMetricFamily("iop_history_backlog", "Writes that wait for the history.", health["history_backlog"]),
            GaugeMetricFamily("iop_nodes_up", "Nodes whose link is up.", health["nodes_up"]),
            GaugeMetricFamily("iop_runs_open", "Runs that have not ended.", health["runs_open"]),
            *self._of_nodes(),
            *self._of_targets(),
            *self._of_machines(),
            *self._of_links(),
        ]

    def _of_nodes(self) -> list[Metric]:
        up = GaugeMetricFamily("iop_node_up", "1 when the node's link is up.", labels=["node"])
        draining = GaugeMetricFamily("iop_node_draining", "1 when the node is given no new runs.", labels=["node"])
        running = GaugeMetricFamily("iop_node_runs_running", "Runs on the node.", labels=["node"])
        seen: set[str] = set()
        for view in self._edge.nodes():
            name = self._node(view.node_id)
            if name in seen:         # two samples of one series are an error to Prometheus
                continue
            seen.add(name)
            up.add_metric([name], float(view.state == "up"))
            draining.add_metric([name], float(view.draining))
            running.add_metric([name], view.running)
        return [up, draining, running]

    def _of_targets(self) -> list[Metric]:
        """What is under way at each target, and whether any node is ready for it, over all nodes."""
        running, ready = Counts(), Counts()
        for view in self._edge.nodes():
            for one in view.targets:
                name = self._adapter(one.adapter), self._target(one.target)
                running[name] += one.running
                ready[name] += one.ready
        families = []
        for family, what, counts in (("iop_runs_in_flight", "Runs placed on a node and not ended.", running),
                                     ("iop_target_nodes_ready", "Nodes that are ready for runs of the target.", ready)):
            gauge = GaugeMetricFamily(family, what, labels=["adapter", "target"])
            for name, count in counts.items():
                gauge.add_metric(list(name), count)
            families.append(gauge)
        return families

    def _of_machines(self) -> list[Metric]:
        """What the nodes' machines have to do, whoever gave it them."""
        busy = GaugeMetricFamily("iop_node_busy_ratio", "Of the processors of the node's machine, 0 to 1.", labels=["node"])
        used = GaugeMetricFamily("iop_node_memory_used_bytes", "Of the memory of the node's machine.", labels=["node"])
        total = GaugeMetricFamily("iop_node_memory_bytes", "Memory of the node's machine.", labels=["node"])
        gpu_busy = GaugeMetricFamily("iop_node_gpu_busy_ratio", "Of one graphics processor, 0 to 1.", labels=["node", "gpu"])
        gpu_used = GaugeMetricFamily("iop_node_gpu_memory_used_bytes", "Of its memory.", labels=["node", "gpu"])
        gpu_total = GaugeMetricFamily("iop_node_gpu_memory_bytes", "Memory of it.", labels=["node", "gpu"])
        loads = {self._node(view.node_id): view.load for view in self._edge.nodes() if view.load and view.state == "up"}
        for name, load in loads.items():
            busy.add_metric([name], load["busy"])
            used.add_metric([name], load["memory_used_bytes"])
            total.add_metric([name], load["memory_total_bytes"])
            for number, gpu in enumerate(load["gpus"][:MOST_GPUS]):
                for family, value in ((gpu_busy, "busy"), (gpu_used, "memory_used_bytes"), (gpu_total, "memory_total_bytes")):
                    family.add_metric([name, str(number)], gpu[value])
        return [busy, used, total, gpu_busy, gpu_used, gpu_total]

    def _of_links(self) -> list[Metric]:
        if self._links is None:
            return []
        return [_by_code("iop_link_refused", "Connections and greetings of nodes that were refused, by code.",
                         self._links.refused),
                _by_code("iop_link_protocol_errors", "Links that broke the protocol, by code.", self._links.protocol_errors)]


def _by_code(name: str, what: str, counts: Mapping[str, int]) -> Metric:
    family = CounterMetricFamily(name, what, labels=["code"])
    for code, count in counts.items():
        family.add_metric([code], count)
    return family


def _detail(event: node_pb2.EdgeNodeEvent) -> dict[str, Any]:
    try:
        detail = msgspec.json.decode(event.detail) if event.detail else {}
    except msgspec.DecodeError:
        return {}
    return detail if isinstance(detail, dict) else {}
