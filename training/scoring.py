"""The score of what the model itself wrote, for verl's reward manager and reward function."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..rewards import format as answer_format
from ..rewards.registry import outcome_for
from ..schemas.errors import ConfigError
from .settings import Weights

_TOOL_RESPONSE_END = "</tool_response>"


def score_answer(answer: str, data_source: str, ground_truth: str, weights: Weights) -> dict[str, float]:
    """Outcome and format of an answer; tool rewards are not in it.

    Args:
        answer: the model's own last words, without tool output and without calls.

    Returns:
        `score` (weighted), `acc` (1.0 for correct) and `format`, the last two before weighting.

    Raises:
        ConfigError: no score for the data source, or no readable ground truth.
    """
    if not isinstance(ground_truth, str):
        raise ConfigError(f"reward_model.ground_truth: must be text (got {type(ground_truth).__name__})")
    correct = outcome_for(data_source)(answer, ground_truth)
    marked = answer_format.score(answer)
    return {"score": weights.correct * correct + weights.format * marked, "acc": correct, "format": marked}


def masked_score() -> dict[str, float | None]:
    """For a trajectory that failed through our fault: it is not in the loss, and has no accuracy."""
    return {"score": 0.0, "acc": None, "format": None}


def tool_reward(extra_fields: Mapping[str, Any], record: Mapping[str, Any] | None, weight: float) -> float:
    """The weighted tool rewards that are not already at their tokens.

    Args:
        extra_fields: verl's; its `tool_rewards` are a flat list of step rewards, None where a call gave none.
        record: our own, when the trajectory was run by `rollbox_agent`.
    """
    if record is not None and (record["rewards_at_tokens"] or record["infra_failed"]):
        return 0.0
    steps = sum(reward for reward in extra_fields.get("tool_rewards") or () if reward is not None)
    whole = sum(record["tool_rewards"].values()) if record is not None else 0.0
    return float(weight * (steps + whole))


def last_words(text: str) -> str:
    """What a decoded response holds after the last tool output, for a loop that tells us no more.

    verl decodes a whole response, tool output included, and an answer in there must not count.
    """
    tail = text.rpartition(_TOOL_RESPONSE_END)[2]
    if len(tail) == len(text):
        return text
    return tail.lstrip().removeprefix("assistant").lstrip()
