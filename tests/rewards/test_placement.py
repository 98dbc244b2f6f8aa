"""Rewards at tokens: they add up, and never lie on what the model did not write."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollbox.rewards.compose import RewardComposition
from rollbox.rewards.tool_rewards import by_tool
from rollbox.schemas.reward_config import RewardConfig, ToolsPart
from rollbox.schemas.trajectory import Rewards, Trajectory
from rollbox.schemas.validation import validated

from .trajectories import call, trajectory


async def scored(of: Trajectory, **fields: Any) -> Rewards:
    config = {"parts": {"outcome": None, "tools": fields.pop("tools", None)}, **fields}
    found = await RewardComposition(validated(RewardConfig, config, "")).score(of)
    assert found is not None
    return found


async def test_at_the_end_of_the_turn_that_made_the_call() -> None:
    of = trajectory(turns=[(3, 2), (2, 1), (4, 0)], records=[call(0, reward=0.5), call(1, reward=-0.25)])
    final = await scored(of)
    assert final.placed == [(11, 1.25)]
    turns = await scored(of, tools={"placement": "turn"}, weights={"tools": 2.0})
    assert turns.placed == [(2, 1.0), (6, -0.5), (11, 1.0)]


async def test_a_turn_without_tokens_gives_to_the_one_before() -> None:
    of = trajectory(turns=[(3, 2), (0, 1), (4, 0)], records=[call(1, reward=0.5)])
    assert (await scored(of, tools={"placement": "turn"})).placed == [(2, 0.5), (9, 1.0)]
    of = trajectory(turns=[(0, 2), (4, 0)], records=[call(0, reward=0.5)])
    assert (await scored(of, tools={"placement": "turn"})).placed == [(5, 1.5)]
    assert (await scored(trajectory(turns=[]))).placed == []


STEPS = [call(0, reward=1.0), call(1, reward=4.0), call(2, reward=-2.0)]


@pytest.mark.parametrize(
    ("fields", "total"),
    [
        ({}, 3.0),
        ({"aggregation": "mean"}, 1.0),
        ({"aggregation": "last"}, -2.0),
        ({"aggregation": "max"}, 4.0),
        ({"discount": 0.5}, 1.0 / 4 + 4.0 / 2 - 2.0),
        ({"tool_weights": {"python": 2.0}}, 6.0),
        ({"tool_weights": {"search": 2.0}}, 3.0),
        ({"cap": [0.0, 2.5]}, 2.5),
        ({"aggregation": "last", "cap": [-1.0, 1.0]}, -1.0),
    ],
)
def test_aggregation(fields: dict[str, Any], total: float) -> None:
    part = validated(ToolsPart, {"kind": "tools", **fields}, "")
    found = by_tool(STEPS, {}, part, num_turns=3)
    assert found["python"].total == pytest.approx(total)


def test_the_whole_trajectorys_reward_is_added_after_aggregation() -> None:
    part = ToolsPart(kind="tools", aggregation="mean")
    found = by_tool([*STEPS, call(0, executed=False, reward=99.0)], {"python": 0.5, "search": 2.0}, part, 3)
    assert (found["python"].total, found["python"].whole) == (1.5, 0.5)
    assert (found["search"].total, found["search"].by_turn) == (2.0, ())


@st.composite
def rolled(draw: st.DrawFn) -> Trajectory:
    turns = draw(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 4)), max_size=5))
    number = st.floats(-10, 10, allow_nan=False)
    made = st.builds(
        lambda turn, tool, reward, executed: call(turn, tool, reward, executed=executed),
        st.integers(0, max(0, len(turns) - 1)),
        st.sampled_from(["python", "search"]),
        number,
        st.booleans(),
    )
    records = draw(st.lists(made, max_size=6)) if turns else []
    return trajectory(
        answer=draw(st.sampled_from(["#### 5", "no"])),
        turns=turns,
        records=records,
        tool_rewards=draw(st.dictionaries(st.sampled_from(["python", "calculator"]), number)),
    )


@settings(deadline=None)
@given(
    of=rolled(),
    tools=st.fixed_dictionaries(
        {
            "aggregation": st.sampled_from(["sum", "mean", "last", "max"]),
            "placement": st.sampled_from(["final", "turn"]),
            "discount": st.sampled_from([1.0, 0.9, 0.0]),
            "cap": st.sampled_from([None, [-1.0, 1.0]]),
            "clip": st.sampled_from([None, [-0.5, 0.5]]),
            "weight": st.sampled_from([1.0, -2.0, 0.0]),
        }
    ),
    clip=st.sampled_from([None, [-1.0, 1.0]]),
)
async def test_tokens_add_up_to_the_parts_and_lie_on_generated_tokens(of: Trajectory, tools: Any, clip: Any) -> None:
    found = await scored(of, tools=tools, clip=clip)
    assert math.fsum(found.parts.values()) == pytest.approx(found.total, abs=1e-9)
    assert all(of.response_mask[position] == 1 for position, _ in found.placed)
    assert len({position for position, _ in found.placed}) == len(found.placed)
    if any(of.response_mask):
        assert math.fsum(reward for _, reward in found.placed) == pytest.approx(found.total, abs=1e-9)
    else:
        assert found.placed == []
    Rewards.model_validate_json(found.model_dump_json())
