"""Score responses that are there already, and look for constant, saturated, slow and random parts."""

from __future__ import annotations

import asyncio
import math
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import fmean, pstdev

from ..schemas.errors import InfraError
from ..schemas.trajectory import Rewards, Trajectory
from .compose import RewardComposition
from .group_cost import regrouped
from .side_by_side import side_by_side

_SATURATED_SHARE = 0.95
_MIN_NUMBER = 8
TOTAL = "total"


@dataclass(frozen=True, slots=True)
class Distribution:
    """A part's values before weighting, or the total.

    Attributes:
        verdict: what is wrong with it as a training signal, or empty.
    """

    number: int
    mean: float
    std: float
    lowest: float
    highest: float
    verdict: str


@dataclass(slots=True)
class DryRun:
    """What a dry run found.

    Attributes:
        values: (data source, part) -> its values.
        failures: trajectory id -> why it could not be scored.
        part_ms: part -> milliseconds by the clock of each measurement.
        unsteady: ids that scored differently the second time -> (first, second) total.
        disagreements: ids that the baseline scores otherwise -> (baseline, ours) total.
    """

    values: dict[tuple[str, str], list[float]] = field(default_factory=lambda: defaultdict(list))
    failures: dict[str, str] = field(default_factory=dict)
    part_ms: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    unsteady: dict[str, tuple[float, float]] = field(default_factory=dict)
    disagreements: dict[str, tuple[float, float]] = field(default_factory=dict)
    scored: int = 0

    def distributions(self) -> dict[tuple[str, str], Distribution]:
        """By (data source, part)."""
        return {key: distribution(values) for key, values in self.values.items()}


def distribution(values: Sequence[float]) -> Distribution:
    """Summarise at least one value."""
    lowest, highest = min(values), max(values)
    verdict = ""
    if len(values) >= _MIN_NUMBER:
        if lowest == highest:
            verdict = "constant: it teaches nothing"
        elif max(values.count(lowest), values.count(highest)) >= _SATURATED_SHARE * len(values):
            end = lowest if values.count(lowest) > values.count(highest) else highest
            verdict = f"saturated at {end:g}"
    return Distribution(len(values), fmean(values), pstdev(values), lowest, highest, verdict)


_Scored = tuple[Rewards | None, Rewards | None]
"""By our rewards, and by the baseline."""


async def dry_run(
    trajectories: Iterable[Trajectory],
    rewards: RewardComposition,
    baseline: RewardComposition | None = None,
    *,
    concurrency: int = 32,
) -> DryRun:
    """Score every trajectory twice, and by the baseline. The rewards must be open.

    Raises:
        ConfigError: a sample cannot be scored at all.
    """
    found, free, given = DryRun(), asyncio.Semaphore(concurrency), list(trajectories)

    async def one(trajectory: Trajectory) -> _Scored:
        async with free:
            try:
                return await _scored(found, trajectory, rewards, baseline)
            except InfraError as error:
                found.failures[trajectory.trajectory_id] = str(error)
                return None, None

    scored = await side_by_side(one(trajectory) for trajectory in given)
    ours = regrouped(rewards.config, given, [mine for mine, _ in scored])
    others = [other for _, other in scored]
    if baseline is not None:
        others = regrouped(baseline.config, given, others)
    for trajectory, mine, other in zip(given, ours, others, strict=True):
        _add(found, trajectory, mine, other)
    return found


async def _scored(
    found: DryRun, trajectory: Trajectory, rewards: RewardComposition, baseline: RewardComposition | None
) -> _Scored:
    first = await rewards.score(trajectory)
    if first is None:
        found.failures[trajectory.trajectory_id] = trajectory.error or "it failed through the infrastructure"
        return None, None
    await _time_parts(found, trajectory, rewards)
    second = await rewards.score(trajectory)
    if second is not None and not _same(first, second):
        found.unsteady[trajectory.trajectory_id] = (first.total, second.total)
    return first, None if baseline is None else await baseline.score(trajectory)


def _add(found: DryRun, trajectory: Trajectory, mine: Rewards | None, other: Rewards | None) -> None:
    if mine is None:
        return
    found.scored += 1
    for part, value in [*mine.raw.items(), (TOTAL, mine.total)]:
        found.values[trajectory.sample.data_source, part].append(value)
    if other is not None and not _same(other, mine):
        found.disagreements[trajectory.trajectory_id] = (other.total, mine.total)


async def _time_parts(found: DryRun, trajectory: Trajectory, rewards: RewardComposition) -> None:
    for name in rewards.config.parts:
        started = time.perf_counter()
        if await rewards.measure(name, trajectory) is not None:
            found.part_ms[name].append((time.perf_counter() - started) * 1000)


def _same(one: Rewards, other: Rewards) -> bool:
    return math.isclose(one.total, other.total, abs_tol=1e-9) and one.correct == other.correct
