"""The reward of a whole trajectory: outcome, format, and what each tool gave, by name."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..schemas.errors import InfraError
from ..schemas.trajectory import Rewards, Trajectory
from . import format as answer_format
from .registry import outcome_for
from .tool_rewards import by_tool


@dataclass(frozen=True, slots=True)
class RewardWeights:
    """total = correct * `correct` + format * `format` + sum over tools of (tool reward * `tool`)."""

    correct: float = 1.0
    format: float = 0.1
    tool: float = 1.0


def score_trajectory(trajectory: Trajectory, weights: RewardWeights | None = None) -> Rewards | None:
    """Score the model's own last words; tool output is never read.

    Returns:
        None for a trajectory that failed through our fault: it must be masked, not scored 0.

    Raises:
        ConfigError: no score for the data source, or no readable ground truth.
        InfraError: a part is NaN or infinite; the message names it.
    """
    if trajectory.infra_failed or trajectory.sample.ground_truth is None:
        return None
    weights = weights or RewardWeights()
    answer = trajectory.answer_text
    correct = outcome_for(trajectory.sample.data_source)(answer, trajectory.sample.ground_truth)
    raw = {"correct": correct, "format": answer_format.score(answer)}
    parts = {"correct": weights.correct * correct, "format": weights.format * raw["format"]}
    for tool, reward in by_tool(trajectory.records, trajectory.tool_rewards).items():
        raw[f"tool/{tool}"] = reward
        parts[f"tool/{tool}"] = weights.tool * reward
    for name, value in parts.items():
        if not math.isfinite(value):
            raise InfraError(f"reward part {name!r} of trajectory {trajectory.trajectory_id} is {value}")
    return Rewards(total=math.fsum(parts.values()), parts=parts, raw=raw, correct=correct == 1.0)
