"""Metrics of a sandbox server, in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from ..schemas.errors import ErrorKind, InfraError, ToolError
from ..schemas.run import RunResult
from ..schemas.session import CellResult
from .pool import Pool

CONTENT_TYPE = CONTENT_TYPE_LATEST
_BUCKETS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300)


class Metrics:
    """Counts of one server; not global, so that a process may hold several."""

    def __init__(self, pool: Pool) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_PoolGauges(pool))
        self._runs = Counter("rollbox_runs", "Programs that ran, by status.", ["status"], registry=self._registry)
        self._errors = Counter("rollbox_errors", "Requests without a run, by kind.", ["kind"], registry=self._registry)
        self._phases = {
            phase: Histogram(f"rollbox_{phase}_seconds", text, buckets=_BUCKETS_S, registry=self._registry)
            for phase, text in (
                ("queue", "Waiting for a slot."),
                ("start", "Getting a jail ready."),
                ("run", "The program itself, by the clock."),
                ("cpu", "CPU time of the program's process tree."),
            )
        }

        counters = (
            ("cells", "Cells that ran, by status and by what they did to their session.", ["status", "state"]),
            ("sessions_opened", "Sessions, by whether they were opened or forked.", ["how"]),
            ("sessions_ended", "Sessions that have ended, by reason.", ["reason"]),
        )
        self._cells, self._sessions, self._session_ends = (
            Counter(f"rollbox_{name}", text, labels, registry=self._registry) for name, text, labels in counters
        )

    def watch_sessions(self, live: Callable[[], int]) -> None:
        """Ask `live` for the number of live sessions when metrics are read."""
        Gauge("rollbox_sessions", "Live sessions.", registry=self._registry).set_function(live)

    def count_cell(self, result: CellResult) -> None:
        """Count a cell that ended."""
        self._cells.labels(result.status.value, result.state.value).inc()
        self._observe(result)

    def count_session(self, how: str) -> None:
        self._sessions.labels(how).inc()

    def count_session_end(self, reason: str) -> None:
        self._session_ends.labels(reason).inc()

    def count(self, result: RunResult) -> None:
        """Count a run that ended."""
        self._runs.labels(result.status.value).inc()
        self._observe(result)

    def _observe(self, result: RunResult) -> None:
        for phase, histogram in self._phases.items():
            histogram.observe(getattr(result, f"{phase}_ms") / 1000)

    def count_error(self, error: Exception) -> None:
        """Count a request that had no run."""
        kind = error.kind if isinstance(error, ToolError | InfraError) else ErrorKind.INFRA
        self._errors.labels(kind.value).inc()

    def text(self) -> bytes:
        return generate_latest(self._registry)


class _PoolGauges(Collector):
    """Read from the pool when asked, not kept."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def collect(self) -> Iterable[GaugeMetricFamily]:
        info = self._pool.info()
        for name, value, text in (
            ("running", info.running, "Programs that run now."),
            ("waiting", info.waiting, "Requests that wait for a slot."),
            ("slots", info.slots, "Programs that may run at a time."),
            ("queue_size", info.queue, "Requests that may wait."),
        ):
            yield GaugeMetricFamily(f"rollbox_{name}", text, value=value)
