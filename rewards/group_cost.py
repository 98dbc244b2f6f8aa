"""OTC-GRPO's reward for few calls, measured by the best of the group (Wang et al., 2025, arXiv 2504.14870)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ..schemas.reward_config import RewardConfig, ToolsPart
from ..schemas.trajectory import Rewards, Trajectory
from .parts import clipped, sum_of
from .placement import turn_ends
from .shaping import call_cost_from_optimum


def regrouped(
    config: RewardConfig, trajectories: Sequence[Trajectory], scored: Sequence[Rewards | None]
) -> list[Rewards | None]:
    """`with_group_costs` for the finished trajectories of many questions, told apart by `sample_id`.

    Args:
        scored: the rewards of each; None for what has none, which stays so.
    """
    found = list(scored)
    questions: dict[str, list[int]] = {}
    if config.group_parts:
        for number, trajectory in enumerate(trajectories):
            questions.setdefault(trajectory.sample.sample_id, []).append(number)
    for numbers in questions.values():
        known = [(number, rewards) for number in numbers if (rewards := scored[number]) is not None]
        lasts = [max(turn_ends(trajectories[number]).values(), default=None) for number, _ in known]
        group = [(rewards, last) for (_, rewards), last in zip(known, lasts, strict=True)]
        for (number, _), rewards in zip(known, with_group_costs(config, group), strict=True):
            found[number] = rewards
    return found


def with_group_costs(config: RewardConfig, group: Sequence[tuple[Rewards, int | None]]) -> list[Rewards]:
    """The rewards of one question's trajectories, with the parts that only the whole group tells.

    The optimum is the fewest calls with which one of them answered rightly. Where none did nothing is known, and the
    part stays 0 for all.

    Args:
        config: of the rewards file. group: (rewards, position of the last generated token, which carries the part, or
            None where no token is known); trajectories that failed through our fault are left out.
    """
    found = [rewards for rewards, _ in group]
    for name in config.group_parts:
        right = [
            rewards.raw[f"{name}/calls"] for rewards in found if rewards.correct and f"{name}/calls" in rewards.raw
        ]
        if right:
            fewest = int(min(right))
            found = [
                _with_part(config, name, _cost(config, name, rewards, fewest), rewards, last)
                for rewards, (_, last) in zip(found, group, strict=True)
            ]
    return found


def _cost(config: RewardConfig, name: str, rewards: Rewards, fewest: int) -> float:
    """0 where the gate is shut, or the part is none of this data source."""
    part = config.group_parts[name]
    calls, gate = rewards.raw.get(f"{name}/calls"), part.only_if
    if calls is None or (gate is not None and not gate.is_open(_measured(config, gate.part, rewards.raw))):
        return 0.0
    return clipped(part, call_cost_from_optimum(int(calls), fewest, part.smoothing))


def _measured(config: RewardConfig, name: str, raw: Mapping[str, float]) -> float:
    """A part before weighting; that of tools is the sum of its tools."""
    if isinstance(config.parts[name], ToolsPart):
        return sum_of(value for key, value in raw.items() if key.startswith(f"{name}/"))
    return raw.get(name, 0.0)


def _with_part(config: RewardConfig, name: str, value: float, rewards: Rewards, last: int | None) -> Rewards:
    if name not in rewards.parts:
        return rewards
    parts = {**rewards.parts, name: config.weight_of(name) * value}
    parts.pop("clip", None)
    total = math.fsum(parts.values())
    if config.clip is not None:
        unclipped, total = total, min(max(total, config.clip[0]), config.clip[1])
        parts["clip"] = total - unclipped
    placed = dict(rewards.placed)
    if last is not None:
        placed[last] = placed.get(last, 0.0) + total - rewards.total
    return rewards.model_copy(
        update={
            "total": total,
            "parts": parts,
            "raw": {**rewards.raw, name: value},
            "placed": sorted((position, reward) for position, reward in placed.items() if reward),
        }
    )
