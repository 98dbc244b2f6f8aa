"""Aggregate what the tools themselves gave: step rewards of calls and whole-trajectory rewards, by tool."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..schemas.call_record import CallRecord
from ..schemas.reward_config import ToolsPart

SUM = ToolsPart(kind="tools")


@dataclass(frozen=True, slots=True)
class ToolReward:
    """What one tool gave.

    Attributes:
        total: after aggregation, cap and the tool's weight. NaN or infinite where one of its rewards is.
        by_turn: (turn, reward) of its calls; with `whole` they add up to `total`.
        whole: what belongs to no turn: the whole-trajectory reward, and what the cap took away.
    """

    total: float
    by_turn: tuple[tuple[int, float], ...]
    whole: float


def by_tool(
    records: Sequence[CallRecord], tool_rewards: Mapping[str, float], part: ToolsPart = SUM, num_turns: int = 0
) -> dict[str, ToolReward]:
    """Aggregate by tool name.

    Args:
        records: the calls; each carries its step reward (`execute`). Calls that never ran are left out.
        tool_rewards: tool name -> `calc_reward` of the trajectory, which is added after aggregation.
        num_turns: assistant turns of the trajectory, which discounting counts from.
    """
    steps: defaultdict[str, list[tuple[int, float]]] = defaultdict(list)
    for record in records:
        if record.executed:
            discount = part.discount ** max(0, num_turns - 1 - record.turn)
            steps[record.tool].append((record.turn, discount * record.tool_reward))
    names = [*steps, *(name for name in tool_rewards if name not in steps)]
    return {name: _aggregated(name, steps[name], tool_rewards.get(name, 0.0), part) for name in names}


def _aggregated(name: str, steps: list[tuple[int, float]], whole: float, part: ToolsPart) -> ToolReward:
    broken = next((value for value in (whole, *(reward for _, reward in steps)) if not math.isfinite(value)), None)
    if broken is not None:  # whatever the aggregation would choose or the cap would cut: whoever adds it up names it
        return ToolReward(broken, (), 0.0)
    weight = part.tool_weights.get(name, 1.0)
    counted = [(turn, weight * share) for turn, share in _shares(steps, part.aggregation)]
    uncapped = math.fsum([*(share for _, share in counted), weight * whole])
    lowest, highest = part.cap or (-math.inf, math.inf)
    total = min(max(uncapped, lowest), highest)
    rest = total - math.fsum(share for _, share in counted) if counted else total
    return ToolReward(total, tuple(counted), rest)


def _shares(steps: list[tuple[int, float]], aggregation: str) -> list[tuple[int, float]]:
    """What each call adds to the aggregate."""
    if not steps or aggregation == "sum":
        return steps
    if aggregation == "mean":
        return [(turn, reward / len(steps)) for turn, reward in steps]
    return [steps[-1] if aggregation == "last" else max(steps, key=lambda step: step[1])]
