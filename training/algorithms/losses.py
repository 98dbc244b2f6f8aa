"""A policy loss whose importance ratios belong to turns."""

from __future__ import annotations

from typing import Any

import torch

from .turns import spread, turn_index, turn_rewards


def turn_clip_loss(
    old_log_prob: torch.Tensor,
    log_prob: torch.Tensor,
    advantages: torch.Tensor,
    response_mask: torch.Tensor,
    loss_agg_mode: str = "token-mean",
    config: Any = None,
    rollout_is_weights: torch.Tensor | None = None,
) -> tuple[torch.Tensor, dict[str, Any]]:
    """GSPO's clipped objective (Zheng et al., 2025, arXiv 2507.18071) with a turn in the place of a sequence.

    The ratio of turn k is s_k = exp(mean over its tokens of log pi - log pi_old), and each of its tokens takes
    -min(s_k A, clip(s_k, 1 - clip_ratio_low, 1 + clip_ratio_high) A). What tools say between turns does not dilute it,
    and one turn that moved far does not silence the others.

    Args:
        old_log_prob, log_prob, advantages, response_mask: [B, T]. config: verl's actor section.
        rollout_is_weights: [B, T], multiplied in where given.

    Returns:
        (loss, metrics of the actor).
    """
    from verl.trainer.ppo.core_algos import agg_loss

    low, high = _clip(config, "clip_ratio_low"), _clip(config, "clip_ratio_high")
    turns = turn_index(response_mask)
    ones = turn_rewards(torch.ones_like(log_prob), turns).clamp(min=1)
    # The gradient must reach each token of the turn, and does through the sum.
    ratio_by_turn = torch.exp((turn_rewards(log_prob - old_log_prob, turns) / ones).clamp(max=20.0))
    ratio = spread(ratio_by_turn, turns)
    clipped = ratio.clamp(1 - low, 1 + high)
    losses = -torch.minimum(ratio * advantages, clipped * advantages)
    if rollout_is_weights is not None:
        losses = losses * rollout_is_weights
    extra = dict(getattr(config, "global_batch_info", None) or {})
    loss = agg_loss(loss_mat=losses, loss_mask=response_mask, loss_agg_mode=loss_agg_mode, **extra)
    number = response_mask.sum().clamp(min=1)
    with torch.no_grad():
        cut = ((clipped * advantages) < (ratio * advantages)).float() * response_mask
        kl = torch.where(response_mask.bool(), old_log_prob - log_prob, 0.0).sum() / number
    return loss, {"actor/pg_clipfrac": (cut.sum() / number).item(), "actor/ppo_kl": kl.item()}


def _clip(config: Any, name: str) -> float:
    value = getattr(config, name, None)
    return float(getattr(config, "clip_ratio", 0.2) if value is None else value)
