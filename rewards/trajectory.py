"""The reward of a whole trajectory by the default rewards: outcome, format, and what each tool gave."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ..schemas.reward_config import FormatPart, OutcomePart, RewardConfig, ToolsPart
from ..schemas.surrogates import without_lone_surrogates
from ..schemas.trajectory import Rewards, Sample, StopReason, Trajectory
from .compose import RewardComposition


@dataclass(frozen=True, slots=True)
class RewardWeights:
    """total = correct * `correct` + format * `format` + sum over tools of (tool reward * `tool`)."""

    correct: float = 1.0
    format: float = 0.1
    tool: float = 1.0

    def config(self) -> RewardConfig:
        """The rewards file that says the same."""
        return RewardConfig(
            parts={
                "correct": OutcomePart(kind="outcome", weight=self.correct),
                "format": FormatPart(kind="format", weight=self.format),
                "tool": ToolsPart(kind="tools", weight=self.tool),
            }
        )


@cache
def default_rewards(weights: RewardWeights | None = None) -> RewardComposition:
    """The rewards where no file is named; they need not be entered unless a program is scored."""
    return RewardComposition((weights or RewardWeights()).config())


def rewards_of(file: Path | None) -> RewardComposition:
    """The rewards of a file, or new default rewards where there is none.

    Raises:
        ConfigError: the file is wrong.
    """
    return RewardComposition(RewardWeights().config()) if file is None else RewardComposition.load(file)


async def score_trajectory(trajectory: Trajectory, weights: RewardWeights | None = None) -> Rewards | None:
    """Score by the default rewards. See `RewardComposition.score`."""
    return await default_rewards(weights).score(trajectory)


def trajectory_of_text(sample: Sample, answer: str, trajectory_id: str = "text") -> Trajectory:
    """A trajectory of one turn without tokens, for scoring a text alone; half a surrogate pair in it is U+FFFD."""
    answer = str(without_lone_surrogates(answer))
    return Trajectory(
        trajectory_id=trajectory_id,
        sample=sample,
        messages=[*sample.messages, {"role": "assistant", "content": answer}],
        prompt_ids=[],
        assistant_texts=[answer],
        stop_reason=StopReason.ANSWERED,
    )
