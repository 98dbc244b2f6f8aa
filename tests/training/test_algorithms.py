"""Estimators and sampling against small references in numpy, each written from its paper's formula."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rollbox.schemas.errors import ConfigError
from rollbox.training.algorithms import dapo
from rollbox.training.algorithms.estimators import gigpo, turn_grpo, turn_reinforce_plus_plus
from rollbox.training.algorithms.groups import normalised_in_groups
from rollbox.training.algorithms.resample import (
    Quality,
    groups_with_signal,
    resample_on_correct,
    zero_std_share,
)
from rollbox.training.algorithms.states import split_uids, state_hashes, tag_uids
from rollbox.training.algorithms.turns import discounted_returns, spread, turn_exists, turn_index, turn_rewards

Turns = list[tuple[int, int, float]]
"""Of a trajectory: (generated tokens, context tokens after them, reward on the turn's last token)."""


def batch(trajectories: Sequence[Turns], tokens: int = 40) -> tuple[torch.Tensor, torch.Tensor]:
    """(rewards, mask), [B, T] each, padded."""
    rewards = torch.zeros(len(trajectories), tokens)
    mask = torch.zeros(len(trajectories), tokens)
    for row, turns in enumerate(trajectories):
        position = 0
        for generated, context, reward in turns:
            mask[row, position : position + generated] = 1
            rewards[row, position + generated - 1] = reward
            position += generated + context
    return rewards, mask


def on_tokens(trajectories: Sequence[Turns], by_turn: Sequence[Sequence[float]], tokens: int = 40) -> np.ndarray:
    """A value per turn at each of its tokens."""
    found = np.zeros((len(trajectories), tokens))
    for row, turns in enumerate(trajectories):
        position = 0
        for (generated, context, _), value in zip(turns, by_turn[row], strict=True):
            found[row, position : position + generated] = value
            position += generated + context
    return found


def norm(value: float, group: Sequence[float]) -> float:
    """(r - mean) / (std + eps), DeepSeekMath (Shao et al., 2024), equation 4; with the sample's std as verl."""
    return float((value - np.mean(group)) / (np.std(group, ddof=1) + 1e-6)) if len(group) > 1 else 0.0


TWO_QUESTIONS: list[Turns] = [
    [(3, 2, 0.5), (4, 0, 1.0)],
    [(2, 3, 0.0), (2, 1, 0.2), (5, 0, 0.0)],
    [(6, 0, 1.0)],
    [(1, 1, -0.5), (1, 1, 0.3), (3, 0, 1.0)],
    [(2, 2, 0.1), (2, 0, 0.0)],
    [(4, 1, 0.9), (4, 0, 1.0)],
]
INDEX = np.array(["a", "a", "a", "a", "b", "b"], dtype=object)


def rows_of(question: str) -> list[int]:
    return [row for row, name in enumerate(INDEX) if name == question]


def test_turns_are_found_in_the_mask() -> None:
    rewards, mask = batch(TWO_QUESTIONS[:2], tokens=16)
    turns = turn_index(mask)
    assert turns[0].tolist() == [0, 0, 0, -1, -1, 1, 1, 1, 1] + [-1] * 7
    assert turns[1].tolist() == [0, 0, -1, -1, -1, 1, 1, -1, 2, 2, 2, 2, 2, -1, -1, -1]
    assert torch.allclose(turn_rewards(rewards, turns), torch.tensor([[0.5, 1.0, 0.0], [0.0, 0.2, 0.0]]))
    assert turn_exists(turns).tolist() == [[True, True, False], [True, True, True]]


def test_turn_grpo_is_the_papers() -> None:
    rewards, mask = batch(TWO_QUESTIONS)
    advantages, returns = turn_grpo(rewards, mask, INDEX, {"rollbox": {"turn_weight": 0.7}})
    expected: list[list[float]] = []
    for row, turns in enumerate(TWO_QUESTIONS):
        group = rows_of(INDEX[row])
        outcome = norm(turns[-1][2], [TWO_QUESTIONS[i][-1][2] for i in group])
        values = []
        for k, turn in enumerate(turns):
            same = [TWO_QUESTIONS[i][k][2] for i in group if k < len(TWO_QUESTIONS[i]) - 1]
            values.append(outcome if k == len(turns) - 1 else outcome + 0.7 * norm(turn[2], same))
        expected.append(values)
    assert np.allclose(advantages.numpy(), on_tokens(TWO_QUESTIONS, expected), atol=1e-5)
    assert torch.equal(advantages, returns)


def test_with_outcomes_alone_turn_grpo_is_grpo() -> None:
    outcomes: list[Turns] = [[(3, 2, 0.0), (2, 0, r)] for r in (1.0, 0.0, 0.0, 1.0)]
    rewards, mask = batch(outcomes)
    advantages, _ = turn_grpo(rewards, mask, np.array(["q"] * 4, dtype=object))
    scores = [1.0, 0.0, 0.0, 1.0]
    assert np.allclose(advantages.numpy(), on_tokens(outcomes, [[norm(r, scores)] * 2 for r in scores]), atol=1e-5)


STATES = [["s0", "x"], ["s0", "x", "y"], ["s0"], ["s0", "y", "x"], ["t0", "x"], ["t0", "x"]]


@pytest.mark.parametrize("tagged", [True, False])
def test_gigpo_is_the_papers(tagged: bool) -> None:
    rewards, mask = batch(TWO_QUESTIONS)
    index = np.array(tag_uids(list(INDEX), STATES) if tagged else list(INDEX), dtype=object)
    advantages, _ = gigpo(rewards, mask, index, {"rollbox": {"turn_weight": 0.5, "gamma": 0.9}})
    # Feng et al., equations 3 (episode), 5-7 (anchor state groups, discounted return) and 8 (their sum).
    returns = [
        [sum(0.9 ** (j - k) * turns[j][2] for j in range(k, len(turns))) for k in range(len(turns))]
        for turns in TWO_QUESTIONS
    ]
    groups: dict[Any, list[float]] = {}

    def key(row: int, k: int) -> Any:
        known = tagged or k == 0
        return (INDEX[row], "first" if k == 0 else STATES[row][k]) if known else (row, k)

    for row, values in enumerate(returns):
        for k, value in enumerate(values):
            groups.setdefault(key(row, k), []).append(value)
    expected = []
    for row, values in enumerate(returns):
        totals = [sum(turn[2] for turn in TWO_QUESTIONS[i]) for i in rows_of(INDEX[row])]
        episode = norm(sum(turn[2] for turn in TWO_QUESTIONS[row]), totals)
        expected.append([episode + 0.5 * norm(value, groups[key(row, k)]) for k, value in enumerate(values)])
    assert np.allclose(advantages.numpy(), on_tokens(TWO_QUESTIONS, expected), atol=1e-5)


def test_reinforce_plus_plus_has_a_return_per_turn() -> None:
    rewards, mask = batch(TWO_QUESTIONS)
    advantages, returns = turn_reinforce_plus_plus(rewards, mask, {"rollbox": {"gamma": 0.5}})
    by_turn = [
        [sum(0.5 ** (j - k) * turns[j][2] for j in range(k, len(turns))) for k in range(len(turns))]
        for turns in TWO_QUESTIONS
    ]
    expected = on_tokens(TWO_QUESTIONS, by_turn)
    assert np.allclose(returns.numpy(), expected, atol=1e-6)
    generated = expected[mask.numpy() == 1]
    white = (expected - generated.mean()) / np.sqrt(generated.var(ddof=1) + 1e-8) * mask.numpy()
    assert np.allclose(advantages.numpy(), white, atol=1e-5)


@settings(deadline=None)
@given(
    st.lists(
        st.lists(st.tuples(st.integers(1, 3), st.integers(1, 2), st.floats(-1, 1)), min_size=1, max_size=5),
        min_size=1,
        max_size=5,
    )
)
def test_nothing_lies_on_context_and_all_is_finite(trajectories: list[Turns]) -> None:
    rewards, mask = batch(trajectories)
    index = np.array([str(i % 2) for i in range(len(trajectories))], dtype=object)
    for advantages, returns in (
        turn_grpo(rewards, mask, index),
        gigpo(rewards, mask, index),
        turn_reinforce_plus_plus(rewards, mask),
    ):
        for found in (advantages, returns):
            assert found.shape == mask.shape
            assert torch.isfinite(found).all()
            assert (found[mask == 0] == 0).all()


def test_a_masked_trajectory_changes_nobody_elses_advantage() -> None:
    rewards, mask = batch(TWO_QUESTIONS)
    alone, _ = turn_grpo(rewards[:3], mask[:3], INDEX[:3])
    mask[3] = rewards[3] = 0
    index = INDEX.copy()
    index[3] = "infra"
    for estimator in (turn_grpo, gigpo):
        advantages, _ = estimator(rewards, mask, index)
        assert (advantages[3] == 0).all()
    assert torch.allclose(turn_grpo(rewards, mask, index)[0][:3], alone)


@pytest.mark.parametrize("estimator", [turn_grpo, gigpo, turn_reinforce_plus_plus])
def test_long_turns_in_bfloat16_and_padding_on_both_sides_change_nothing(estimator: Any) -> None:
    mask = torch.zeros(4, 1500, dtype=torch.long)
    rewards = torch.zeros(4, 1500)
    for row, (start, end) in enumerate([(3, 1400), (0, 9), (200, 1500), (7, 8)]):
        mask[row, start:end] = 1
        rewards[row, end - 1] = row / 4  # exact in bfloat16
    mask[0, 500:510] = 0  # a second turn
    rewards[0, 499] = 0.5
    index = np.array(["a", "a", "a", "a"], dtype=object)
    exact, _ = estimator(rewards, mask, index=index)
    narrow, _ = estimator(rewards.bfloat16(), mask.bfloat16(), index=index)
    assert narrow.dtype == torch.float32
    torch.testing.assert_close(narrow, exact)
    assert not exact[mask == 0].any()
    spoiled = torch.where(mask.bool(), rewards, torch.nan)
    torch.testing.assert_close(estimator(spoiled, mask, index=index)[0], exact)


def test_groups() -> None:
    values = torch.tensor([1.0, 3.0, 5.0, 7.0])
    assert normalised_in_groups(values, ["a", "a", "b", "c"], by_std=False).tolist() == [-1.0, 1.0, 0.0, 0.0]
    assert torch.allclose(discounted_returns(torch.tensor([[1.0, 2.0, 4.0]]), 0.5), torch.tensor([[3.0, 4.0, 4.0]]))
    turns = turn_index(torch.tensor([[1, 1, 0, 1]]))
    assert spread(torch.tensor([[2.0, 3.0]]), turns).tolist() == [[2.0, 2.0, 0.0, 3.0]]


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({"turn_wieght": 1}, r"algorithm\.rollbox: turn_wieght: Extra inputs"),
        ({"gamma": 2}, r"algorithm\.rollbox: gamma: .*less than or equal to 1"),
    ],
)
def test_wrong_settings_are_named(section: dict[str, Any], said: str) -> None:
    rewards, mask = batch(TWO_QUESTIONS)
    with pytest.raises(ConfigError, match=said):
        gigpo(rewards, mask, INDEX, {"rollbox": section})


def test_states_travel_with_the_id() -> None:
    hashes = state_hashes(["question", "out: 5", "out: 5"])
    assert hashes[1] == hashes[2] != hashes[0]
    assert split_uids(tag_uids(["a", "b"], [hashes, hashes[:1]])) == (["a", "b"], [hashes, hashes[:1]])
    assert split_uids(["plain"]) == (["plain"], [None])


CLEAN, DIRTY = Quality(4, 0, 1, 4), Quality(4, 4, 4, 3)


@pytest.mark.parametrize(
    ("quality", "penalty"),
    [(CLEAN, 0.0), (DIRTY, 2.0), (Quality(0, 0, 1, 1), 0.5), (Quality(4, 1, 0, 4), 1.25), (Quality(2, 1, 3, 4), 1.0)],
)
def test_penalties_of_roc(quality: Quality, penalty: float) -> None:
    assert quality.penalty == pytest.approx(penalty)


def test_roc_keeps_clean_positives_and_any_negatives() -> None:
    correct = [True] * 8 + [False] * 8
    quality = ([CLEAN] * 4 + [DIRTY] * 4) * 2
    counts = np.zeros(16)
    rng = np.random.default_rng(0)
    for _ in range(2000):
        kept = resample_on_correct(correct, quality, 8, rng)
        assert len(set(kept)) == 8
        assert sum(correct[i] for i in kept) == 4
        counts[kept] += 1
    clean, dirty, negatives = counts[:4].mean(), counts[4:8].mean(), counts[8:]
    assert clean > 5 * dirty
    assert negatives == pytest.approx(1000, rel=0.15)


@settings(deadline=None)
@given(st.lists(st.booleans(), min_size=1, max_size=16), st.integers(1, 16))
def test_roc_always_keeps_as_many_as_asked_and_both_kinds(correct: list[bool], keep: int) -> None:
    quality = [CLEAN] * len(correct)
    rng = np.random.default_rng(1)
    if keep > len(correct):
        with pytest.raises(ValueError, match="of a group of"):
            resample_on_correct(correct, quality, keep, rng)
        return
    kept = resample_on_correct(correct, quality, keep, rng)
    assert kept == sorted(set(kept))
    assert len(kept) == keep
    if keep >= 2 and len(set(correct)) == 2:
        assert {correct[i] for i in kept} == {True, False}


def test_dynamic_sampling() -> None:
    groups, rewards = ["a", "a", "b", "b", "c"], [1.0, 0.0, 1.0, 1.0, 0.0]
    assert groups_with_signal(groups, rewards) == {"a"}
    assert zero_std_share(groups, rewards) == pytest.approx(2 / 3)


def test_dapo_is_settings_and_a_part() -> None:
    settings, part = dapo.overrides(20480, 4096)
    assert "actor_rollout_ref.actor.clip_ratio_high=0.28" in settings
    assert "actor_rollout_ref.actor.loss_agg_mode=token-mean" in settings
    assert (part.max_tokens, part.buffer_tokens) == (20480, 4096)
