"""The score of what the model itself wrote, for verl's reward manager and reward function."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..schemas.trajectory import Rewards

_TOOL_RESPONSE_END = "</tool_response>"


def answer_scores(rewards: Rewards | None) -> dict[str, Any]:
    """`score` (weighted), `acc` (1.0 for correct) and `format`, before weighting, of the default rewards."""
    if rewards is None:
        return dict(masked_score())
    return {"score": rewards.total, "acc": float(bool(rewards.correct)), "format": rewards.raw["format"]}


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
