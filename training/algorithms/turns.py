"""Turns of a response, found in its mask: each run of generated tokens is one."""

from __future__ import annotations

import torch


def turn_index(response_mask: torch.Tensor) -> torch.Tensor:
    """Number of the turn that each token belongs to.

    Args:
        response_mask: [B, T], 1 for generated tokens.

    Returns:
        [B, T] integers from 0; -1 where the mask is 0.
    """
    mask = response_mask.bool()
    before = torch.nn.functional.pad(mask, (1, 0))[:, :-1]
    number = torch.cumsum((mask & ~before).long(), dim=1) - 1
    return torch.where(mask, number, torch.full_like(number, -1))


def turn_rewards(token_level_rewards: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
    """Sum of rewards by turn: [B, K] with K turns at most, 0 where a response has fewer; in float32 or better.

    Args:
        token_level_rewards: [B, T]; what lies on other tokens than generated ones is left out, NaN among it.
        turns: see `turn_index`.
    """
    # In bfloat16 a sum of ones would stay at 256.
    exact = token_level_rewards.to(torch.promote_types(token_level_rewards.dtype, torch.float32))
    sums = exact.new_zeros(turns.shape[0], max(1, int(turns.max()) + 1))
    return sums.scatter_add_(1, turns.clamp(min=0), torch.where(turns >= 0, exact, 0.0))


def spread(by_turn: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
    """A value per turn, [B, K], at each of the turn's tokens: [B, T], 0 elsewhere."""
    return torch.gather(by_turn, 1, turns.clamp(min=0)) * (turns >= 0)


def turn_exists(turns: torch.Tensor) -> torch.Tensor:
    """[B, K] booleans: which turns a response has."""
    count = max(1, int(turns.max()) + 1)
    numbers = torch.arange(count, device=turns.device)
    return numbers[None, :] <= turns.max(dim=1).values[:, None]


def discounted_returns(rewards: torch.Tensor, gamma: float) -> torch.Tensor:
    """R_k = sum over j >= k of gamma^(j - k) r_j, by turn: [B, K]."""
    returns = torch.zeros_like(rewards)
    following = rewards.new_zeros(rewards.shape[0])
    for turn in reversed(range(rewards.shape[1])):
        following = rewards[:, turn] + gamma * following
        returns[:, turn] = following
    return returns
