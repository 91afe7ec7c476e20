"""Series for Prometheus that one thread counts, without the locks and checks of the library's own: a fifth of the cost.

The thread that renders a scrape reads them meanwhile; a series may be one behind its neighbour then.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry
from prometheus_client.utils import floatToGoString

Labels = tuple[str, ...]


class Tally(Collector):
    """A counter."""

    def __init__(self, name: str, what: str, labels: Sequence[str], registry: CollectorRegistry) -> None:
        self._told = name, what, None, tuple(labels)
        self._values: dict[Labels, float] = {}
        registry.register(self)

    def add(self, labels: Labels, amount: float = 1.0) -> None:
        self._values[labels] = self._values.get(labels, 0.0) + amount

    def collect(self) -> Iterator[Metric]:
        family = CounterMetricFamily(*self._told)
        for labels, value in list(self._values.items()):
            family.add_metric(labels, value)
        yield family


class Spread(Collector):
    """A histogram; `bounds` are the upper ends of its buckets, without the last, which has none."""

    def __init__(self, name: str, what: str, labels: Sequence[str], bounds: Sequence[float],
                 registry: CollectorRegistry) -> None:
        self._told = name, what, None, None, tuple(labels)
        self._bounds = tuple(bounds)
        self._names = tuple(floatToGoString(bound) for bound in (*bounds, float("inf")))
        self._values: dict[Labels, list[float]] = {}     # how many in each bucket, and the sum
        registry.register(self)

    def observe(self, labels: Labels, value: float) -> None:
        values = self._values.get(labels)
        if values is None:
            values = self._values[labels] = [0.0] * (len(self._names) + 1)
        values[bisect_left(self._bounds, value)] += 1
        values[-1] += value

    def collect(self) -> Iterator[Metric]:
        family = HistogramMetricFamily(*self._told)
        for labels, values in list(self._values.items()):
            count, buckets = 0.0, []
            for name, more in zip(self._names, values[:-1], strict=True):
                count += more
                buckets.append((name, count))
            family.add_metric(labels, buckets, values[-1])
        yield family
