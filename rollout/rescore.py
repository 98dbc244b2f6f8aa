"""Score the saved trajectories of a run again, and show what changed and why."""

from __future__ import annotations

import asyncio
import os
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from rich.table import Table

from ..rewards.compose import RewardComposition
from ..rewards.group_cost import regrouped
from ..rewards.side_by_side import side_by_side
from ..schemas.errors import ConfigError, InfraError
from ..schemas.trajectory import Rewards, Trajectory

RESCORED = "rescored.jsonl"
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Change:
    """One trajectory. Attributes: before, after: None where it has no reward. error: why scoring failed."""

    trajectory_id: str
    before: Rewards | None
    after: Rewards | None
    error: str | None = None

    @property
    def moved(self) -> bool:
        return (self.before and self.before.total) != (self.after and self.after.total)

    def why(self) -> str:
        """The parts that differ, with their values after weighting, before and now."""
        if self.before is None or self.after is None:
            return self.error or ("it had no reward" if self.before is None else "it has no reward")
        names = dict.fromkeys([*self.before.parts, *self.after.parts])
        pairs = [(name, self.before.parts.get(name), self.after.parts.get(name)) for name in names]
        return ", ".join(f"{name}: {_shown(old)} -> {_shown(new)}" for name, old, new in pairs if old != new)


async def rescore(
    trajectories: Sequence[Trajectory], rewards: RewardComposition, *, concurrency: int = 32
) -> list[Change]:
    """Score each again. The rewards must be open. A trajectory that failed through us stays without a reward.

    Args:
        concurrency: trajectories scored at a time; models and servers need several to be quick.

    Raises:
        ConfigError: a sample cannot be scored.
    """
    free = asyncio.Semaphore(concurrency)

    async def one(trajectory: Trajectory) -> tuple[Rewards | None, str | None]:
        async with free:
            try:
                return await rewards.score(trajectory), None
            except InfraError as failure:
                return None, str(failure)

    scored = await side_by_side(one(trajectory) for trajectory in trajectories)
    changes = []
    regroup = regrouped(rewards.config, trajectories, [after for after, _ in scored])
    for trajectory, after, (_, error) in zip(trajectories, regroup, scored, strict=True):
        changes.append(Change(trajectory.trajectory_id, trajectory.rewards, after, error))
        trajectory.rewards = after
    return changes


def check_can_write(directory: Path) -> None:
    """Before anything is scored.

    Raises:
        ConfigError: nothing can be written into the directory.
    """
    if not os.access(directory, os.W_OK):
        raise ConfigError(f"{directory}: cannot be written into, and {RESCORED} goes there")


def write_rescored(trajectories: Sequence[Trajectory], directory: Path) -> Path:
    """`rescored.jsonl`: the trajectories with their new rewards. The run's own files stay as they are.

    Raises:
        ConfigError: it cannot be written; one of an earlier time is still whole then.
    """
    path = directory / RESCORED
    beside = directory / f".{RESCORED}.{os.getpid()}"
    try:
        with beside.open("w", encoding="utf-8") as lines:
            lines.writelines(trajectory.model_dump_json() + "\n" for trajectory in trajectories)
        beside.replace(path)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from error
    finally:
        beside.unlink(missing_ok=True)
    return path


def change_table(changes: Sequence[Change]) -> Table:
    """Means of every part before and after, and how many trajectories moved."""
    table = Table(title=f"{sum(change.moved for change in changes)} of {len(changes)} trajectories changed")
    for column in ("part", "before", "after"):
        table.add_column(column, justify="left" if column == "part" else "right", overflow="fold")
    sides = [_means([change.before for change in changes]), _means([change.after for change in changes])]
    for name in dict.fromkeys([*sides[0], *sides[1]]):
        table.add_row(name, *(_shown(side.get(name)) for side in sides))
    return table


def examples(changes: Sequence[Change]) -> list[str]:
    """One line for each of the trajectories that moved most, after one for those that could not be scored."""
    failed = [change for change in changes if change.error is not None]
    lines = (
        [f"could not be scored: {len(failed)}, such as {failed[0].trajectory_id}: {failed[0].error}"] if failed else []
    )
    moved = [change for change in changes if change.moved]
    moved.sort(key=lambda change: -abs((_total(change.after) or 0.0) - (_total(change.before) or 0.0)))
    return lines + [
        f"{change.trajectory_id}: {_shown(_total(change.before))} -> {_shown(_total(change.after))} ({change.why()})"
        for change in moved[:_SHOWN]
    ]


def _means(rewards: Sequence[Rewards | None]) -> dict[str, float]:
    values: defaultdict[str, list[float]] = defaultdict(list)
    for reward in rewards:
        if reward is not None:
            for name, value in [*reward.parts.items(), ("total", reward.total)]:
                values[name].append(value)
            if reward.correct is not None:
                values["correct (share)"].append(float(reward.correct))
    return {name: fmean(found) for name, found in values.items()}


def _total(reward: Rewards | None) -> float | None:
    return None if reward is None else reward.total


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:+.3f}"
