"""Aggregate what the tools themselves gave: step rewards of calls and whole-trajectory rewards, by tool."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from ..schemas.call_record import CallRecord


def by_tool(records: Sequence[CallRecord], tool_rewards: Mapping[str, float]) -> dict[str, float]:
    """Sum by tool name.

    Args:
        records: the calls; each carries its step reward (`execute`). Calls that never ran count as 0.
        tool_rewards: tool name -> `calc_reward` of the trajectory.
    """
    totals: defaultdict[str, float] = defaultdict(float)
    for record in records:
        if record.executed:
            totals[record.tool] += record.tool_reward
    for tool, reward in tool_rewards.items():
        totals[tool] += reward
    return dict(totals)
