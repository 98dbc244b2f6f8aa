"""DAPO (Yu et al., 2025, arXiv 2503.14476) as verl's settings and parts of ours; nothing of it needs a loss of its own.

| piece | here |
|---|---|
| clip-higher | `actor.clip_ratio_low`, `actor.clip_ratio_high`, in verl's own loss |
| token-level loss | `actor.loss_agg_mode=token-mean` |
| dynamic sampling | verl's `algorithm.filter_groups`; for loops of one's own `resample.groups_with_signal` |
| overlong shaping | the reward part `overlong` |
| no KL | `actor.use_kl_loss=False`, `algorithm.use_kl_in_reward=False` |
"""

from __future__ import annotations

from ...schemas.reward_config import OverlongPart

CLIP_LOW, CLIP_HIGH = 0.2, 0.28
"""The paper's own."""


def overrides(max_response_tokens: int, buffer_tokens: int) -> tuple[list[str], OverlongPart]:
    """(settings for verl's command line, the overlong part for the rewards file).

    Args:
        max_response_tokens: `data.max_response_length`. buffer_tokens: how many of them are punished (the paper: 4096
            of 20480).

    Raises:
        ValidationError: the buffer is longer than the response.
    """
    part = OverlongPart(kind="overlong", max_tokens=max_response_tokens, buffer_tokens=buffer_tokens)
    settings = [
        "algorithm.adv_estimator=grpo",
        "algorithm.use_kl_in_reward=False",
        "algorithm.filter_groups.enable=True",
        "algorithm.filter_groups.metric=reward",  # a masked trajectory has no `acc`
        "actor_rollout_ref.actor.use_kl_loss=False",
        f"actor_rollout_ref.actor.clip_ratio_low={CLIP_LOW}",
        f"actor_rollout_ref.actor.clip_ratio_high={CLIP_HIGH}",
        "actor_rollout_ref.actor.loss_agg_mode=token-mean",
        f"data.max_response_length={max_response_tokens}",
    ]
    return settings, part
