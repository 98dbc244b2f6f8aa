"""Metrics of a search server, in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from ...schemas.errors import ErrorKind, InfraError, ToolError

CONTENT_TYPE = CONTENT_TYPE_LATEST
_BUCKETS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)
_GAUGES = {
    "in_work": "Requests that hold a slot.",
    "waiting": "Requests that wait for a slot.",
    "slots": "Requests that may be in work at a time.",
    "queue_size": "Requests that may wait.",
    "passages": "Passages of the index; 0 where they are another service's.",
}
_COUNTERS = {
    "cache_hits": "Queries answered from the cache, or by a search that was under way.",
    "cache_misses": "Queries that the engine was asked.",
    "engine_calls": "Calls of the engine, of one batch of queries each.",
    "engine_queries": "Queries in these calls.",
}


class Metrics:
    """Counts of one server; not global, so that a process may hold several.

    Args:
        read: what others count, by the names of `_GAUGES` and `_COUNTERS`; asked when metrics are read.
    """

    def __init__(self, read: Callable[[], Mapping[str, float]]) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_Read(read))
        self._requests = Counter("rollbox_search_requests", "Requests answered.", registry=self._registry)
        self._queries = Counter("rollbox_search_queries", "Queries in these.", registry=self._registry)
        self._empty = Counter("rollbox_search_empty", "Queries that found nothing.", registry=self._registry)
        self._errors = Counter(
            "rollbox_search_errors", "Requests refused or failed.", ["kind"], registry=self._registry
        )
        self._seconds = {
            phase: Histogram(f"rollbox_search_{phase}_seconds", text, buckets=_BUCKETS_S, registry=self._registry)
            for phase, text in (("queue", "Waiting for a slot."), ("search", "From there to the answer."))
        }

    def count(self, queries: int, empty: int, queue_s: float, search_s: float) -> None:
        """Count a request that was answered."""
        self._requests.inc()
        self._queries.inc(queries)
        self._empty.inc(empty)
        self._seconds["queue"].observe(queue_s)
        self._seconds["search"].observe(search_s)

    def count_error(self, error: Exception) -> None:
        kind = error.kind if isinstance(error, ToolError | InfraError) else ErrorKind.INFRA
        self._errors.labels(kind.value).inc()

    def text(self) -> bytes:
        return generate_latest(self._registry)


class _Read(Collector):
    def __init__(self, read: Callable[[], Mapping[str, float]]) -> None:
        self._read = read

    def collect(self) -> Iterable[GaugeMetricFamily | CounterMetricFamily]:
        values = self._read()
        for name, text in _GAUGES.items():
            yield GaugeMetricFamily(f"rollbox_search_{name}", text, value=values[name])
        for name, text in _COUNTERS.items():
            yield CounterMetricFamily(f"rollbox_search_{name}", text, value=values[name])
