"""Metrics of a batch of trajectories for verl's loggers, all computed from their records."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from .algorithms.resample import zero_std_share
from .batch_rows import BatchRow

PREFIX = "rollbox"
Record = Mapping[str, Any]


def batch_metrics(rows: Sequence[BatchRow], lost: int = 0) -> dict[str, float]:
    """Name -> value. Where verl joins several batches, names decide: `total` is summed, `max` and `mean` kept so.

    Args:
        lost: trajectories that never came.
    """
    records = [row.record for row in rows if row.record is not None]
    counted = [row for row in rows if not row.infra_failed]
    metrics: dict[str, float] = {"infra_failed_total": len(rows) - len(counted), "lost_total": lost}
    if records:
        metrics |= _trajectory_metrics(records)
        metrics |= _tool_metrics([call for record in records for call in record["calls"]])
    metrics |= _reward_metrics([row.reward_info for row in counted])
    totals = [math.fsum(row.scores) for row in counted if row.scores is not None]
    if totals:
        metrics["reward/all/mean"] = fmean(totals)
        questions = [row.key.rsplit("_", 2)[0] for row in counted if row.scores is not None]
        metrics["group/zero_std_share/mean"] = zero_std_share(questions, totals)
    placed = [sum(reward for _, reward in row.record["token_rewards"]) for row in counted if row.record is not None]
    if placed:
        metrics["reward/at_tokens/mean"] = fmean(placed)
    return {f"{PREFIX}/{name}": float(value) for name, value in metrics.items()}


def _trajectory_metrics(records: Sequence[Record]) -> dict[str, float]:
    stops = Counter(record["stop_reason"] for record in records)
    return {
        "turns/mean": fmean(len(record["assistant_texts"]) for record in records),
        "turns/max": max(len(record["assistant_texts"]) for record in records),
        "calls/mean": fmean(len(record["calls"]) for record in records),
        "tool_tokens/mean": fmean(record["tool_tokens"] for record in records),
        "draft_calls_total": sum(record["draft_calls"] for record in records),
        **{f"stop/{reason}": count / len(records) for reason, count in stops.items()},
    }


def _tool_metrics(calls: Sequence[Record]) -> dict[str, float]:
    """Per tool; what could not be read as a call has no tool and is counted by its kind only."""
    metrics: dict[str, float] = {"parse_repairs_total": sum(call["repaired"] for call in calls)}
    kinds = Counter(call["error_kind"] for call in calls if call["error_kind"] is not None)
    metrics |= {f"errors/{kind}_total": count for kind, count in kinds.items()}
    executed = [call for call in calls if call["executed"]]
    for tool in sorted({call["tool"] for call in executed}):
        mine = [call for call in executed if call["tool"] == tool]
        queued = sum(call["queue_ms"] for call in mine)
        spent = queued + sum(call["run_ms"] for call in mine)
        latencies = sorted(call["queue_ms"] + call["run_ms"] for call in mine)
        metrics |= {
            f"tool/{tool}/calls_total": len(mine),
            f"tool/{tool}/errors_total": sum(call["error_kind"] is not None for call in mine),
            f"tool/{tool}/latency_ms/p50": percentile(latencies, 0.50),
            f"tool/{tool}/latency_ms/p99": percentile(latencies, 0.99),
            f"tool/{tool}/queue_share": queued / spent if spent else 0.0,
            f"tool/{tool}/reward/mean": fmean(call["tool_reward"] for call in mine),
            f"tool/{tool}/retries_total": sum(call["retries"] for call in mine),
        }
    return metrics


def _reward_metrics(infos: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Means of whatever numbers the reward gave beside its total."""
    values: dict[str, list[float]] = {}
    for info in infos:
        for name, value in info.items():
            if isinstance(value, bool | int | float) and math.isfinite(value):
                values.setdefault(name, []).append(float(value))
    return {f"reward/{name}/mean": fmean(found) for name, found in values.items()}


def percentile(ordered: Sequence[float], share: float) -> float:
    """The nearest-rank percentile of values in rising order, at least one."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
