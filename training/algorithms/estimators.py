"""Advantage estimators that look at turns. All take verl's arguments and return (advantages, returns), [B, T] each.

Rewards are expected at the turns that earned them: `placement: turn` in the rewards file. What lies on a trajectory's
last turn is its outcome.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import torch

from .groups import normalised_in_groups, whitened
from .settings import settings_of
from .states import split_uids
from .turns import discounted_returns, spread, turn_exists, turn_index, turn_rewards

Tensors = tuple[torch.Tensor, torch.Tensor]


@torch.no_grad()
def turn_grpo(
    token_level_rewards: torch.Tensor,
    response_mask: torch.Tensor,
    index: np.ndarray,
    config: Any = None,
    **kwargs: Any,
) -> Tensors:
    """GRPO with turn rewards (Zeng et al., 2025, "Reinforcing Multi-Turn Reasoning in LLM Agents via Turn-Level Reward
    Design", arXiv 2505.11821).

    A trajectory's outcome O is what lies on its last turn, and r_k the reward of an earlier turn k:
    A_k = norm(O) + turn_weight * norm(r_k) for k before the last, and norm(O) for the last, where norm is over the
    trajectories of the question that have such a turn. (The paper puts the weight on the outcome instead.)

    Args:
        token_level_rewards: [B, T]. response_mask: [B, T]. index: [B], the question of each.
        config: verl's `algorithm` section; see `EstimatorSettings`.
    """
    settings = settings_of(config)
    turns = turn_index(response_mask)
    rewards, exists = turn_rewards(token_level_rewards, turns), turn_exists(turns)
    questions, _ = split_uids(index)
    last = turns.max(dim=1).values.clamp(min=0)
    outcome = normalised_in_groups(rewards.gather(1, last[:, None]).squeeze(1), questions, settings.by_std)
    advantages = outcome[:, None].expand_as(rewards).clone()
    for turn in range(rewards.shape[1]):
        rows = [row for row in range(len(questions)) if exists[row, turn] and turn < last[row]]
        if rows:
            values = normalised_in_groups(rewards[rows, turn], [questions[row] for row in rows], settings.by_std)
            advantages[rows, turn] += settings.turn_weight * values
    return _both(advantages, turns, response_mask)


@torch.no_grad()
def gigpo(
    token_level_rewards: torch.Tensor,
    response_mask: torch.Tensor,
    index: np.ndarray,
    config: Any = None,
    **kwargs: Any,
) -> Tensors:
    """Group-in-group policy optimisation (Feng et al., 2025, arXiv 2505.10978).

    A_k = norm_question(sum of rewards) + turn_weight * norm_state(R_k): the second groups the turns of a question's
    trajectories that began in the same state, and compares their discounted returns R_k. States come with the
    question's id (`states.tag_uids`). Without them only the first turns of a question are known to share one.

    Args: as `turn_grpo`; `gamma` of the settings is the paper's.
    """
    settings = settings_of(config)
    turns = turn_index(response_mask)
    rewards, exists = turn_rewards(token_level_rewards, turns), turn_exists(turns)
    questions, states = split_uids(index)
    episode = normalised_in_groups(rewards.sum(dim=1), questions, settings.by_std)
    returns = discounted_returns(rewards, settings.gamma)
    cells = [(row, turn) for row, turn in exists.nonzero().tolist()]
    keys = [_state_key(questions[row], states[row], row, turn) for row, turn in cells]
    rows, columns = [row for row, _ in cells], [turn for _, turn in cells]
    advantages = episode[:, None].expand_as(rewards).clone()
    if cells:
        step = normalised_in_groups(returns[rows, columns], keys, settings.by_std)
        advantages[rows, columns] += settings.turn_weight * step
    return _both(advantages, turns, response_mask)


def _state_key(question: str, states: Sequence[str] | None, row: int, turn: int) -> Hashable:
    if turn == 0:
        return (question, "first")
    if states is None or turn >= len(states):
        return (question, row, turn)
    return (question, states[turn])


@torch.no_grad()
def turn_reinforce_plus_plus(
    token_level_rewards: torch.Tensor,
    response_mask: torch.Tensor,
    config: Any = None,
    **kwargs: Any,
) -> Tensors:
    """REINFORCE++ (Hu et al., 2025, arXiv 2501.03262) with a return per turn.

    Each token of turn k gets R_k = sum over j >= k of gamma^(j - k) r_j, with the discount by turn and not by token,
    and the whole batch is whitened over its generated tokens. Unlike a discount by token, a long turn loses nothing.

    Args: as `turn_grpo`, without groups.
    """
    settings = settings_of(config)
    turns = turn_index(response_mask)
    returns = spread(discounted_returns(turn_rewards(token_level_rewards, turns), settings.gamma), turns)
    return whitened(returns, response_mask), returns


def _both(by_turn: torch.Tensor, turns: torch.Tensor, response_mask: torch.Tensor) -> Tensors:
    advantages = spread(by_turn, turns) * response_mask
    return advantages, advantages
