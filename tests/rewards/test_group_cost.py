"""OTC with the optimum of the group, against the paper's formula in numpy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollbox.rewards.compose import RewardComposition
from rollbox.rewards.dry_run import dry_run
from rollbox.rewards.group_cost import regrouped, with_group_costs
from rollbox.rollout.rescore import rescore
from rollbox.schemas.errors import ConfigError
from rollbox.schemas.reward_config import RewardConfig
from rollbox.schemas.trajectory import Rewards
from rollbox.schemas.validation import validated

from .trajectories import call, sample, trajectory

GATED = {"only_if": {"part": "outcome", "at_least": 1}}


def rewards_file(cheap: dict[str, Any] | None = None, **fields: Any) -> RewardConfig:
    part = {"kind": "call_cost", "optimal_calls": "group", **GATED, **(cheap or {})}
    return validated(RewardConfig, {"parts": {"outcome": None, "cheap": part}, **fields}, "rewards.yaml")


async def group_of(config: RewardConfig, calls: list[int], right: list[bool]) -> list[tuple[Rewards, int]]:
    found = []
    for number, is_right in zip(calls, right, strict=True):
        records = [call(0) for _ in range(number)] + [call(0, executed=False)]
        of = trajectory("#### 5" if is_right else "#### 6", records=records, turns=[(3, 2), (4, 0)])
        rewards = await RewardComposition(config).score(of)
        assert rewards is not None
        found.append((rewards, 8))
    return found


def reference(calls: list[int], right: list[bool], c: float) -> np.ndarray:
    """r_tool of OTC-GRPO, section 4.2 of the paper, times r_phi, the outcome: n is the least m of the right answers."""
    m = np.asarray(calls, dtype=np.float64)
    outcome = np.asarray(right, dtype=np.float64)
    if not outcome.any():
        return np.zeros_like(m)
    n = m[outcome > 0].min()
    if n == 0:
        tool = np.where(m == 0, 1.0, np.cos(m * np.pi / (2 * m + c)))
    else:
        tool = np.sin((2 * m * n / (m + n)) * np.pi / (2 * n))
    return tool * outcome


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), min_size=1, max_size=8), st.sampled_from([1.0, 4.0]))
async def test_it_is_the_papers_formula(members: list[tuple[int, bool]], smoothing: float) -> None:
    calls, right = [number for number, _ in members], [is_right for _, is_right in members]
    config = rewards_file({"smoothing": smoothing, "weight": 0.5})
    found = with_group_costs(config, await group_of(config, calls, right))
    assert [rewards.raw["cheap"] for rewards in found] == pytest.approx(list(reference(calls, right, smoothing)))
    for rewards, is_right in zip(found, right, strict=True):
        assert rewards.parts["cheap"] == 0.5 * rewards.raw["cheap"]
        assert rewards.total == pytest.approx(float(is_right) + rewards.parts["cheap"])
        assert math.fsum(reward for _, reward in rewards.placed) == pytest.approx(rewards.total)
        assert {position for position, _ in rewards.placed} <= {8}


async def test_the_right_answer_with_the_fewest_calls_earns_most() -> None:
    config = rewards_file()
    found = with_group_costs(config, await group_of(config, [5, 2, 1, 0], [True, True, False, False]))
    assert [rewards.raw["cheap"] for rewards in found] == pytest.approx([math.sin(20 / 7 * math.pi / 4), 1.0, 0.0, 0.0])
    assert found[0].raw["cheap/calls"] == 5.0  # a call that never ran is none


async def test_without_a_gate_wrong_answers_are_measured_too_and_clips_hold() -> None:
    config = rewards_file({"only_if": None, "clip": [0.0, 0.5]}, clip=[0.0, 1.25])
    found = with_group_costs(config, await group_of(config, [2, 2], [True, False]))
    assert [rewards.total for rewards in found] == [1.25, 0.5]
    assert found[0].parts == {"outcome": 1.0, "cheap": 0.5, "clip": -0.25}


async def test_the_gate_can_be_what_tools_gave() -> None:
    cheap = {"kind": "call_cost", "optimal_calls": "group", "only_if": {"part": "tools", "at_least": 1.0}}
    config = validated(RewardConfig, {"parts": {"outcome": None, "tools": None, "cheap": cheap}}, "rewards.yaml")
    made = [trajectory(records=[call(0, reward=reward)]) for reward in (0.5, 1.0)]
    scored = [await RewardComposition(config).score(of) for of in made]
    found = regrouped(config, made, scored)
    assert [rewards and rewards.raw["cheap"] for rewards in found] == [0.0, 1.0]


async def test_a_trajectory_alone_earns_nothing_by_it() -> None:
    rewards = await RewardComposition(rewards_file()).score(trajectory(records=[call(0)]))
    assert rewards is not None
    assert (rewards.total, rewards.raw["cheap"], rewards.raw["cheap/calls"]) == (1.0, 0.0, 1.0)


async def test_another_data_source_is_left_alone() -> None:
    config = rewards_file({"data_sources": ["math*"]})
    rewards = await RewardComposition(config).score(trajectory(of=sample()))
    assert rewards is not None
    assert with_group_costs(config, [(rewards, 8)]) == [rewards]


async def test_saved_trajectories_are_grouped_by_their_sample() -> None:
    config = rewards_file()
    groups = [("a", 3, True), ("b", 1, True), ("a", 1, True), ("b", 0, False)]
    made = []
    for name, calls, is_right in groups:
        of = sample().model_copy(update={"sample_id": name})
        answer = "#### 5" if is_right else "#### 6"
        made.append(trajectory(answer, records=[call(0) for _ in range(calls)], of=of))
    expected = [math.sin(6 / 4 * math.pi / 2), 1.0, 1.0, 0.0]
    found = await dry_run(made, RewardComposition(config), RewardComposition(config))
    assert found.values["openai/gsm8k", "cheap"] == pytest.approx(expected)
    assert found.disagreements == {}
    changes = await rescore(made, RewardComposition(config))
    assert [change.after.raw["cheap"] for change in changes if change.after] == pytest.approx(expected)
    assert [of.rewards.placed for of in made if of.rewards][1] == [(8, 2.0)]


def test_no_part_waits_for_what_comes_last() -> None:
    late = {"kind": "format", "only_if": {"part": "cheap", "at_least": 0.5}}
    parts = {"outcome": None, "cheap": {"kind": "call_cost", "optimal_calls": "group"}, "late": late}
    with pytest.raises(ConfigError, match="'cheap' is known only of the group, after the others"):
        validated(RewardConfig, {"parts": parts}, "rewards.yaml")
    with pytest.raises(ConfigError, match="optimal_calls"):
        rewards_file({"optimal_calls": -1})
