"""A finished trajectory as verl's `AgentLoopOutput`: tokens, mask, rewards at their tokens, and the record of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field
from pydantic_core import to_jsonable_python
from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics, AgentLoopOutput

from ..rewards.placement import position_of_turn, turn_ends
from ..schemas.trajectory import Trajectory
from .algorithms.states import state_hashes
from .batch_rows import RECORD
from .verl_engine import Generations


class RollboxOutput(AgentLoopOutput):
    """Adds rewards at token positions to what verl's V1 trainer puts into the batch.

    Attributes:
        token_rewards: (position in `response_ids`, reward), added to the score, which verl puts on the last token.
    """

    token_rewards: list[tuple[int, float]] = Field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        fields: dict[str, Any] = super().as_dict()
        fields.pop("token_rewards", None)
        if "rm_scores" in fields:
            if not any(self.response_mask):
                fields["rm_scores"].zero_()  # left out of the loss: whatever it was scored is not to be read
            for position, reward in self.token_rewards:
                fields["rm_scores"][position] += reward
        return fields


def token_rewards(trajectory: Trajectory, weight: float) -> list[tuple[int, float]]:
    """The tools' rewards, weighted, each at the last token that the model wrote before it was earned.

    Step rewards of a turn's calls lie on that turn's last token, rewards of the whole trajectory on the last of all.
    """
    ends = turn_ends(trajectory)
    if not ends:
        return []
    by_position: dict[int, float] = {}
    for record in trajectory.records:
        if record.executed:
            position = position_of_turn(ends, record.turn)
            by_position[position] = by_position.get(position, 0.0) + weight * record.tool_reward
    if trajectory.tool_rewards:
        last = max(ends.values())
        by_position[last] = by_position.get(last, 0.0) + weight * sum(trajectory.tool_rewards.values())
    return sorted((position, reward) for position, reward in by_position.items() if reward)


def make_output(
    trajectory: Trajectory,
    generations: Generations,
    *,
    tool_weight: float,
    rewards_at_tokens: bool,
    eos_token_id: int,
    processor_kwargs: Mapping[str, Any] | None = None,
) -> RollboxOutput:
    """What verl is given for a trajectory.

    An `infra_failed` one keeps its tokens but is masked out everywhere, so that it has no part in the loss.

    Args:
        rewards_at_tokens: the trainer reads `as_dict` (V1). Otherwise tool rewards are left to the reward manager.
        eos_token_id: stands for the response where nothing was generated; verl needs one token.
        processor_kwargs: with which the actor is to read the images again.
    """
    masked = trajectory.infra_failed or not trajectory.response_ids
    rewards = [] if masked else token_rewards(trajectory, tool_weight)
    if trajectory.rewards is not None and not masked:
        # The rest is the score, which verl puts on the last token.
        rewards = trajectory.rewards.placed[:-1] if at_last_token(trajectory) else trajectory.rewards.placed
    ids = trajectory.response_ids or [eos_token_id]
    logprobs = trajectory.response_logprobs or [0.0]
    return RollboxOutput(
        prompt_ids=trajectory.prompt_ids,
        response_ids=ids,
        response_mask=[0] * len(ids) if masked else trajectory.response_mask,
        response_logprobs=logprobs if generations.has_logprobs and generations.sampling.get("logprobs") else None,
        routed_experts=generations.routed_experts,
        multi_modal_data=_multi_modal_data(trajectory),
        mm_processor_kwargs=dict(processor_kwargs or {}),
        num_turns=1 + len(trajectory.spans),
        metrics=_metrics(trajectory, generations),
        token_rewards=rewards if rewards_at_tokens else [],
        extra_fields=_extra_fields(trajectory, generations, rewards, masked, rewards_at_tokens),
    )


def _multi_modal_data(trajectory: Trajectory) -> dict[str, Any]:
    """The images that the ids hold, in their order, from which verl makes the actor's pixels and positions."""
    images = [image.pixels for image in trajectory.images if image.start is not None]
    return {"images": images} if images else {}


def _metrics(trajectory: Trajectory, generations: Generations) -> AgentLoopMetrics:
    return AgentLoopMetrics(
        generate_sequences=trajectory.timing.generate_s,
        tool_calls=trajectory.timing.queue_s + trajectory.timing.run_s,
        num_preempted=generations.num_preempted,
    )


def _extra_fields(
    trajectory: Trajectory, generations: Generations, rewards: list[tuple[int, float]], masked: bool, placed: bool
) -> dict[str, Any]:
    """Plain lists, dictionaries, numbers and text, which each of verl's reward managers and queues passes on.

    Every trajectory has the same keys: verl stacks them by those of the first.
    """
    turn_scores = [0.0] * trajectory.num_turns
    for record in trajectory.records:
        turn_scores[record.turn] += record.tool_reward if record.executed else 0.0
    return {
        **(generations.extra_fields or {"min_global_steps": None, "max_global_steps": None}),
        "turn_scores": turn_scores,
        "tool_rewards": [record.tool_reward for record in trajectory.records if record.executed],
        RECORD: {
            "trajectory_id": trajectory.trajectory_id,
            "stop_reason": trajectory.stop_reason.value,
            "infra_failed": masked,
            "error": trajectory.error or _first_infra_error(trajectory),
            "answer_text": trajectory.answer_text,
            "assistant_texts": trajectory.assistant_texts,
            "draft_calls": trajectory.draft_calls,
            "calls": [to_jsonable_python(record, fallback=str) for record in trajectory.records],
            "tool_rewards": dict(trajectory.tool_rewards),
            "rewards": None if masked or trajectory.rewards is None else trajectory.rewards.model_dump(),
            "states": state_hashes(_environment_said(trajectory)),
            "token_rewards": [list(item) for item in rewards],
            "rewards_at_tokens": placed,
            "tool_tokens": len(trajectory.response_mask) - sum(trajectory.response_mask),
            "timing": trajectory.timing.model_dump(),
        },
    }


def at_last_token(trajectory: Trajectory) -> bool:
    """Whether the last of the placed rewards lies on the last token that the model wrote."""
    assert trajectory.rewards is not None
    placed = trajectory.rewards.placed
    return bool(placed) and placed[-1][0] == max(turn_ends(trajectory).values())


def _environment_said(trajectory: Trajectory) -> list[str]:
    """For each turn what the model was last told: the question, or the tools' output."""
    said: list[str] = []
    told: list[str] = []
    for message in trajectory.messages:
        if message["role"] == "assistant":
            said.append("\n".join(told))
            told = []
        else:
            told.append(str(message.get("content") or ""))
    return [*said, "\n".join(told)][: trajectory.num_turns]


def _first_infra_error(trajectory: Trajectory) -> str | None:
    return next((record.error for record in trajectory.records if record.is_infra), None)
