"""Score the saved trajectories of a run again, and show what changed and why."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from rich.table import Table

from ..rewards.compose import RewardComposition
from ..rewards.group_cost import regrouped
from ..schemas.errors import InfraError
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


async def rescore(trajectories: Sequence[Trajectory], rewards: RewardComposition) -> list[Change]:
    """Score each again. The rewards must be open. A trajectory that failed through us stays without a reward.

    Raises:
        ConfigError: a sample cannot be scored.
    """
    scored: list[Rewards | None] = []
    errors: list[str | None] = []
    for trajectory in trajectories:
        try:
            after, error = await rewards.score(trajectory), None
        except InfraError as failure:
            after, error = None, str(failure)
        scored.append(after)
        errors.append(error)
    changes = []
    regroup = regrouped(rewards.config, trajectories, scored)
    for trajectory, after, error in zip(trajectories, regroup, errors, strict=True):
        changes.append(Change(trajectory.trajectory_id, trajectory.rewards, after, error))
        trajectory.rewards = after
    return changes


def write_rescored(trajectories: Sequence[Trajectory], directory: Path) -> Path:
    """`rescored.jsonl`: the trajectories with their new rewards. The run's own files stay as they are."""
    path = directory / RESCORED
    with path.open("w", encoding="utf-8") as lines:
        lines.writelines(trajectory.model_dump_json() + "\n" for trajectory in trajectories)
    return path


def change_table(changes: Sequence[Change]) -> Table:
    """Means of every part before and after, and how many trajectories moved."""
    table = Table(title=f"{sum(change.moved for change in changes)} of {len(changes)} trajectories changed")
    for column in ("part", "before", "after"):
        table.add_column(column, justify="left" if column == "part" else "right")
    sides = [_means([change.before for change in changes]), _means([change.after for change in changes])]
    for name in dict.fromkeys([*sides[0], *sides[1]]):
        table.add_row(name, *(_shown(side.get(name)) for side in sides))
    return table


def examples(changes: Sequence[Change]) -> list[str]:
    """One line for each of the trajectories that moved most."""
    moved = [change for change in changes if change.moved]
    moved.sort(key=lambda change: -abs(_total(change.after) - _total(change.before)))
    return [
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


def _total(reward: Rewards | None) -> float:
    return 0.0 if reward is None else reward.total


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:+.3f}"
