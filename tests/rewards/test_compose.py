"""Rewards files: what adds up, what is refused before a run, and what is never a silent 0."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from rollbox.rewards.compose import RewardComposition
from rollbox.rewards.registry import REGISTRY
from rollbox.rewards.trajectory import RewardWeights, score_trajectory, trajectory_of_text
from rollbox.schemas.errors import ConfigError, ErrorKind, InfraError
from rollbox.schemas.reward_config import RewardConfig
from rollbox.schemas.trajectory import Rewards
from rollbox.schemas.validation import validated

from .trajectories import call, sample, trajectory


def rewards_of(**fields: Any) -> RewardComposition:
    return RewardComposition(validated(RewardConfig, fields, "rewards.yaml"))


async def scored(of: Any = None, **fields: Any) -> Rewards:
    found = await rewards_of(**fields).score(of or trajectory())
    assert found is not None
    return found


@pytest.fixture(scope="module", autouse=True)
def functions() -> None:
    @REGISTRY.score("test/nan", inline=True)
    def nan(solution_str: str, ground_truth: str, extra_info: dict[str, Any]) -> float:
        return math.nan

    @REGISTRY.score("test/half", inline=True)
    def half(solution_str: str, ground_truth: str, extra_info: dict[str, Any]) -> dict[str, float]:
        return {"score": 0.5, "turns": extra_info["num_turns"], "given": extra_info["given"]}


async def test_the_default_is_outcome_format_and_tools() -> None:
    found = await score_trajectory(trajectory(records=[call(0, reward=0.25)], tool_rewards={"python": 1.0}))
    assert found is not None
    assert found.parts == {"correct": 1.0, "format": 0.1, "tool/python": 1.25}
    assert (found.total, found.correct) == (pytest.approx(2.35), True)
    light = await score_trajectory(trajectory(), RewardWeights(correct=2.0, format=0.0))
    assert light is not None
    assert light.parts == {"correct": 2.0, "format": 0.0}


async def test_parts_weights_gates_and_clips() -> None:
    found = await scored(
        trajectory("#### 4", records=[call(0, error_kind=ErrorKind.USER_CODE)] * 3),
        parts={
            "outcome": {"weight": 2.0},
            "format": {"weight": 0.5},
            "bonus": {"kind": "format", "only_if": {"part": "outcome", "at_least": 1}},
            "tool_errors": {"cap": 2, "weight": 0.1},
            "void_turn": None,
        },
        weights={"format": 0.3},
        clip=[-1.0, 0.05],
    )
    assert found.parts == {
        "outcome": 0.0,
        "format": 0.3,
        "bonus": 0.0,
        "tool_errors": -0.2,
        "void_turn": 0.0,
        "clip": pytest.approx(-0.05),
    }
    assert found.raw == {"outcome": 0.0, "format": 1.0, "bonus": 0.0, "tool_errors": -2.0, "void_turn": 0.0}
    assert (found.total, found.correct) == (pytest.approx(0.05), False)


async def test_gates_of_gates_are_followed_in_any_order() -> None:
    parts = {
        "c": {"kind": "format", "only_if": {"part": "b", "at_least": 1}},
        "b": {"kind": "format", "only_if": {"part": "outcome", "at_least": 1}},
        "outcome": None,
    }
    right, wrong = await scored(parts=parts), await scored(trajectory("#### 4"), parts=parts)
    assert (right.total, wrong.total) == (3.0, 0.0)
    at_most = {"outcome": None, "format": {"only_if": {"part": "outcome", "at_most": 0}}}
    assert (await scored(parts=at_most)).parts["format"] == 0.0


async def test_parts_of_other_data_sources_are_left_out() -> None:
    parts = {"outcome": None, "format": {"data_sources": ["math*"]}, "other": {"kind": "format"}}
    assert list((await scored(parts=parts)).parts) == ["outcome", "other"]


async def test_a_file_chooses_functions_by_data_source() -> None:
    of = trajectory(of=sample(given=3))
    found = await scored(of, parts={"outcome": None}, outcomes={"openai/*": "test/half"})
    assert (found.total, found.correct) == (0.5, False)
    assert found.raw == {"outcome": 0.5, "outcome/turns": 2.0, "outcome/given": 3.0}
    both = {"openai/*": "test/nan", "openai/gsm8k": "test/half"}
    assert (await scored(of, parts={"outcome": None}, outcomes=both)).total == 0.5
    named = {"outcome": None, "half": {"kind": "outcome", "function": "test/half", "weight": 0.1}}
    assert (await scored(of, parts=named)).total == pytest.approx(1.05)


async def test_nan_is_an_error_that_names_the_part() -> None:
    with pytest.raises(InfraError, match=r"score 'test/nan' .* returned nan"):
        await scored(parts={"outcome": {"function": "test/nan"}})
    with pytest.raises(InfraError, match="reward part 'tools/python' of trajectory t is nan"):
        await scored(trajectory(records=[call(0, reward=math.nan)]), parts={"tools": None})


@pytest.mark.parametrize(
    ("rewards", "tools"),
    [
        ([math.inf, -math.inf], {}),
        ([math.inf], {"cap": [0.0, 1.0]}),
        ([math.nan, 1.0], {"aggregation": "max"}),
        ([math.nan, 1.0], {"aggregation": "last"}),
        ([math.inf], {"tool_weights": {"python": 0.0}}),
        ([math.nan], {"weight": 0.0}),
        ([1e300], {"weight": 1e300}),
    ],
)
async def test_nothing_hides_a_tools_reward_that_is_no_number(rewards: list[float], tools: dict[str, Any]) -> None:
    of = trajectory(records=[call(0, reward=reward) for reward in rewards])
    gated = {"kind": "format", "only_if": {"part": "tools", "at_least": 0.0}}
    with pytest.raises(InfraError, match="reward part 'tools/python' of trajectory t is "):
        await scored(of, parts={"tools": tools, "gated": gated})


async def test_a_sum_beyond_all_numbers_is_an_error_that_names_it() -> None:
    of = trajectory(records=[call(0, reward=1.5e308)])
    with pytest.raises(InfraError, match="reward part 'total' of trajectory t is "):
        await scored(of, parts={"tools": None, "again": {"kind": "tools"}})


async def test_a_gate_sees_the_part_as_it_is_logged() -> None:
    parts = {"half": {"kind": "outcome", "clip": [0.0, 0.5]}, "format": {"only_if": {"part": "half", "at_least": 0.6}}}
    assert (await scored(parts=parts)).raw == {"half": 0.5, "format": 0.0}


def test_a_sample_without_what_a_part_reads_is_found_before_the_run() -> None:
    rewards = rewards_of(parts={"call_cost": {"optimal_calls": "best", "data_sources": ["openai/*"]}})
    rewards.check_samples([sample(best=0), sample(best=3), sample(data_source="other")])
    for wrong in (None, -1, True, 1.5, "2"):
        with pytest.raises(ConfigError, match=r"sample 's': extra_info\.best: must be a number of calls"):
            rewards.check_samples(iter([sample(best=1), sample(best=wrong)]))


async def test_what_failed_through_us_has_no_reward() -> None:
    assert await rewards_of(parts={"outcome": None}).score(trajectory(infra_failed=True)) is None


async def test_length_and_calls() -> None:
    parts = {
        "overlong": {"max_tokens": 8, "buffer_tokens": 4},
        "all": {"kind": "overlong", "max_tokens": 10, "buffer_tokens": 4, "count": "all"},
        "call_cost": {"smoothing": 2, "optimal_calls": "optimum", "tools": ["python"]},
    }
    of = trajectory(records=[call(0), call(0, "search"), call(1, executed=False)], of=sample(optimum=1))
    found = await scored(of, parts=parts)
    assert found.raw == {"overlong": -0.75, "all": -0.75, "call_cost": pytest.approx(1.0), "call_cost/calls": 1.0}
    with pytest.raises(ConfigError, match=r"extra_info\.optimum: must be a number of calls"):
        await scored(parts=parts)


async def test_a_text_alone_can_be_scored() -> None:
    found = await rewards_of(parts={"outcome": None}).score(trajectory_of_text(sample(), "#### 5"))
    assert found is not None
    assert (found.total, found.placed) == (1.0, [])


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "parts: Field required"),
        ({"parts": {}}, "parts: Dictionary should have at least 1 item"),
        ({"parts": {"mine": None}}, "parts.mine: Input tag 'mine' found using 'kind' does not match"),
        ({"parts": {"format": {"wieght": 1}}}, "parts.format.format.wieght: Extra inputs are not permitted (got 1)"),
        ({"parts": {"format": {"weight": math.nan}}}, "parts.format.format.weight: Input should be a finite number"),
        ({"parts": {"format": {"weight": True}}}, "must be a number, not a boolean"),
        ({"parts": {"format": {"clip": [1, 0]}}}, "clip: 1.0 is larger than 0.0"),
        ({"parts": {"format": None}, "weights": {"from": 1}}, "weights: there is no part 'from'; there are: format"),
        (
            {"parts": {"format": {"only_if": {"part": "x", "at_least": 1}}}},
            "parts.format.only_if.part: there is no part 'x'; there are: format",
        ),
        ({"parts": {"format": {"only_if": {"part": "format"}}}}, "give at_least or at_most"),
        (
            {"parts": {"format": {"only_if": {"part": "outcome", "at_least": 1}},
                       "outcome": {"only_if": {"part": "format", "at_least": 1}}}},
            "the gates go round in a circle at 'format'",
        ),
        (
            {"parts": {"outcome": None, "format": {"only_if": {"part": "outcome", "at_least": 2, "at_most": 1}}}},
            "at_least: 2.0 is larger than at_most (1.0): it would never open",
        ),
        ({"parts": {"format": {"data_sources": ["a*b"]}}}, "data_sources.0: must be a data source, or the start of"),
        ({"parts": {"format": {"data_sources": [""]}}}, "data_sources.0: must be a data source"),
        ({"parts": {"outcome": None}, "outcomes": {"a*b": "openai/gsm8k"}}, "outcomes.a*b.[key]: must be a data so"),
        ({"parts": {"tools": {"cap": [1, 0]}}}, "parts.tools.tools.cap: 1.0 is larger than 0.0"),
        ({"parts": {"tools": {"tool_weights": {"a": True}}}}, "tool_weights.a: must be a number, not a boolean"),
        ({"parts": {"overlong": {"max_tokens": True, "buffer_tokens": 1}}}, "max_tokens: must be a number, not a bool"),
        ({"parts": {"call_cost": {"optimal_calls": True}}}, "must be a number, not a boolean"),
        ({"parts": {"call_cost": {"optimal_calls": ""}}}, "optimal_calls"),
        ({"parts": {"reward_model": {"model": ""}}}, "parts.reward_model.reward_model.model: String should have"),
        ({"parts": {"format": None}, "weights": {"format": True}}, "weights.format: must be a number, not a boolean"),
        ({"parts": {"format": None}, "clip": [1, -1]}, "clip: 1.0 is larger than -1.0"),
        (
            {"parts": {"rubric": {"service": {"url": "http://x"}, "model": "m", "rubric": "r",
                                  "extra_body": {"messages": []}}}},
            "extra_body.messages: is not to be replaced",
        ),
        ({"parts": {"overlong": {"max_tokens": 2, "buffer_tokens": 4}}}, "buffer_tokens: 4 is larger than max_tokens"),
        ({"parts": {"outcome": {"function": "nope"}}}, "parts.outcome.function: data_source: no score for 'nope'"),
        ({"parts": {"outcome": None}, "outcomes": {"a": "nope"}}, "outcomes.a: data_source: no score for 'nope'"),
        ({"parts": {"outcome": None}, "sandbox_url": "TODO"}, "sandbox url: 'TODO' is not an address"),
    ],
)  # fmt: skip
def test_a_wrong_file_says_what_is_wrong(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        rewards_of(**fields)
    assert said in str(caught.value)


def test_samples_are_checked_by_the_functions_that_will_score_them() -> None:
    samples = [sample("five"), sample(None, "unknown")]
    rewards_of(parts={"format": None}).check_samples(samples)
    rewards_of(parts={"outcome": {"data_sources": ["math*"]}}).check_samples(samples)
    rewards_of(parts={"outcome": {"function": "test/half"}}).check_samples(samples[:1])
    with pytest.raises(ConfigError, match="must hold one number"):
        rewards_of(parts={"outcome": None}).check_samples(samples[:1])
    with pytest.raises(ConfigError, match="ground_truth is missing"):
        rewards_of(parts={"outcome": None}).check_samples(samples[1:])


async def test_what_a_file_merges_is_no_second_key(tmp_path: Path) -> None:
    file = tmp_path / "rewards.yaml"
    file.write_text(
        "parts:\n  format: &base {weight: 2.0, clip: [0, 1]}\n"
        "  answer: {<<: *base, kind: format, weight: 3.0}\n  again: {<<: *base, kind: format}\n"
    )
    parts = RewardComposition.load(file).config.parts
    assert {name: part.weight for name, part in parts.items()} == {"format": 2.0, "answer": 3.0, "again": 2.0}


async def test_a_file_with_a_users_module_beside_it(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from rollbox.rewards.registry import score\n"
        "@score('test/beside')\n"
        "async def beside(solution_str, ground_truth, extra_info):\n"
        "    return float(len(solution_str))\n"
    )
    file = tmp_path / "rewards.yaml"
    file.write_text("parts: {outcome: {function: test/beside, weight: 0.5}}\nmodules: [mine.py]\n")
    async with RewardComposition.load(file) as rewards:
        found = await rewards.score(trajectory("1234"))
    assert found is not None
    assert found.total == 2.0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "cannot be read"),
        ("[", "not YAML"),
        (
            "parts: {outcome: , outcome: {weight: 2}}",
            r"not YAML: the key 'outcome' is there twice\n.*line 1, column 20",
        ),
        ("parts: {outcome: }\nparts: {format: }", "the key 'parts' is there twice"),
        ("- a", "must hold a mapping with the key 'parts'"),
        ("parts: {outcome: }\nmodules: [gone.py]", "rewards.yaml: modules: "),
    ],
)
def test_a_file_that_cannot_be_read(tmp_path: Path, text: str | None, said: str) -> None:
    file = tmp_path / "rewards.yaml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ConfigError, match=said):
        RewardComposition.load(file)
