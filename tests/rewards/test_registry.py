"""Score functions by data source: which wins, what is refused, and what a function may return."""

from __future__ import annotations

import asyncio
import math
import threading
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rollbox.rewards.modules import load_reward_modules
from rollbox.rewards.registry import REGISTRY, ScoreRegistry, check_samples, load_built_in, outcome_for
from rollbox.rewards.score import Score
from rollbox.schemas.errors import ConfigError, InfraError

from .trajectories import sample


def constant(value: Any) -> Any:
    def function(solution_str: str, ground_truth: str, extra_info: dict[str, Any]) -> Any:
        return value

    return function


async def test_the_longest_pattern_wins_and_a_whole_name_before_all() -> None:
    registry = ScoreRegistry()
    for value, pattern in enumerate(["*", "math*", "math_dapo*", "math_dapo"]):
        registry.score(pattern)(constant(value))
    found = {name: (await registry.find(name)("", "")).value for name in ("x", "math_x", "math_dapo_x", "math_dapo")}
    assert found == {"x": 0, "math_x": 1, "math_dapo_x": 2, "math_dapo": 3}
    assert [entry.pattern for entry in registry.fits("math_dapo")] == ["math_dapo", "math_dapo*", "math*", "*"]


def test_a_second_registration_names_both_places() -> None:
    registry = ScoreRegistry()
    registry.score("mine")(constant(0))

    def other(solution_str: str, ground_truth: str, extra_info: dict[str, Any]) -> float:
        return 1.0

    with pytest.raises(ConfigError, match=r"'mine' is registered twice: at .*test_registry\.py:\d+ and at ") as caught:
        registry.score("mine")(other)
    assert str(caught.value).count("test_registry.py:") == 2


@pytest.mark.parametrize("pattern", ["", "a*b", "**"])
def test_a_pattern_that_is_none_is_refused(pattern: str) -> None:
    with pytest.raises(ConfigError, match="only at its end"):
        ScoreRegistry().score(pattern)(constant(0))


def test_a_users_function_cannot_take_a_name_of_ours_unseen() -> None:
    with pytest.raises(ConfigError, match=r"twice: at .*gsm8k\.py:\d+ and at .*test_registry"):
        REGISTRY.score("openai/gsm8k")(constant(0))


@pytest.mark.parametrize(
    ("returned", "score"),
    [
        (1, Score(1.0)),
        (True, Score(1.0)),
        (Score(0.5, correct=True), Score(0.5, correct=True)),
        ({"score": 0.5, "acc": True, "pred": "7"}, Score(0.5, True, {"acc": 1.0})),
        (np.float32(0.5), Score(0.5)),
        ({"score": np.float32(1), "acc": np.bool_(False), "n": np.int64(2)}, Score(1.0, False, {"acc": 0.0, "n": 2.0})),
        (Score(np.float32(0.25)), Score(0.25)),
        (Fraction(1, 4), Score(0.25)),
    ],
)
async def test_what_a_function_may_return(returned: Any, score: Score) -> None:
    registry = ScoreRegistry()
    registry.score("mine")(constant(returned))
    assert await registry.find("mine")("", "") == score


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        (None, "returned NoneType"),
        ("1", "returned str"),
        (math.nan, "returned nan as its value"),
        ({"score": math.inf}, "returned inf as its value"),
        ({"score": "high"}, "returned str as its value; it must be a number"),
        ({"score": None}, "returned NoneType as its value"),
        ({"score": 1.0, "acc": "yes"}, "returned str as its acc"),
        (Score("1"), "returned str as its value"),  # type: ignore[arg-type]
        (Score(1.0, logged={"n": None}), "returned NoneType as its n"),  # type: ignore[dict-item]
        (10**400, "returned as its value what is no number: int too large"),
        (np.array([1.0, 2.0]), "returned ndarray"),
        ({"acc": 1.0}, "returned dict"),
        (Score(1.0, logged={"n": math.nan}), "returned nan as its n"),
    ],
)
async def test_what_it_may_not(returned: Any, said: str) -> None:
    registry = ScoreRegistry()
    registry.score("mine")(constant(returned))
    with pytest.raises(InfraError, match=rf"score 'mine' \(.*\) {said}"):
        await registry.find("mine")("", "")


async def test_a_function_that_raises_is_our_failure_and_named() -> None:
    registry = ScoreRegistry()

    @registry.score("mine")
    def broken(solution_str: str, ground_truth: str, extra_info: dict[str, Any]) -> float:
        return float(extra_info["missing"])

    with pytest.raises(InfraError, match=r"score 'mine' \(.*test_registry\.py:\d+\) raised KeyError: 'missing'"):
        await registry.find("mine")("", "")


async def test_a_function_that_hangs_masks_the_sample() -> None:
    registry, may_end = ScoreRegistry(), threading.Event()

    @registry.score("mine", timeout_s=0.1)
    def hanging(solution_str: str, ground_truth: str, extra_info: dict[str, Any]) -> float:
        may_end.wait(60)
        return 1.0

    try:
        with pytest.raises(InfraError, match=r"score 'mine' \(.*test_registry\.py:\d+\) did not end within 0\.1 s"):
            await registry.find("mine")("a", "b")
    finally:
        may_end.set()


@pytest.mark.parametrize("timeout_s", [0, -1.0, math.nan])
def test_a_time_limit_that_is_none_is_refused(timeout_s: float) -> None:
    with pytest.raises(ConfigError, match="timeout_s: must be more than 0 seconds"):
        ScoreRegistry().score("mine", timeout_s=timeout_s)(constant(0))


async def test_a_slow_function_does_not_hold_the_event_loop() -> None:
    registry = ScoreRegistry()
    started, let_go = threading.Event(), threading.Event()

    @registry.score("slow")
    def slow(solution_str: str, ground_truth: str, extra_info: dict[str, Any]) -> float:
        started.set()
        assert let_go.wait(60)
        return 1.0

    @registry.score("async")
    async def coroutine(solution_str: str, ground_truth: str, extra_info: dict[str, Any]) -> float:
        await asyncio.sleep(0)
        return 2.0

    running = asyncio.create_task(registry.find("slow")("", ""))
    assert await asyncio.to_thread(started.wait, 60)
    assert (await registry.find("async")("", "")).value == 2.0
    assert not running.done()
    let_go.set()
    assert (await running).value == 1.0


async def test_an_unknown_data_source_names_what_there_is() -> None:
    with pytest.raises(ConfigError, match=r"data_source: no score for 'nope'; there are: .*openai/gsm8k"):
        outcome_for("nope")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"ground_truth": None}, "sample 's': ground_truth is missing"),
        ({"data_source": "nope"}, "sample 's': data_source: no score for 'nope'"),
        ({"ground_truth": "none"}, "sample 's': ground_truth: must hold one number"),
        ({"data_source": "taco", "ground_truth": "[]"}, "sample 's': ground_truth: not tests of a program"),
        ({"data_source": "cais/mmlu", "ground_truth": "Z"}, "sample 's': ground_truth: must be a letter"),
        ({"data_source": "searchR1_nq", "ground_truth": '{"target": []}'}, "sample 's': ground_truth: must hold an an"),
        ({"data_source": "math_dapo", "ground_truth": " "}, "sample 's': ground_truth: must hold an answer"),
    ],
)
def test_a_sample_that_cannot_be_scored_is_found_before_the_run(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_samples([sample(), sample(**fields)])
    assert str(caught.value).startswith(said)


def test_every_function_of_ours_has_fixtures_and_checks_its_ground_truth() -> None:
    load_built_in()
    mine = [entry for entry in REGISTRY.entries() if entry.function.__module__.startswith("rollbox.")]
    assert {entry.pattern for entry in mine} >= {"openai/gsm8k", "lighteval/MATH", "searchR1_*", "cais/mmlu", "taco"}
    assert [entry.pattern for entry in mine if not entry.fixtures or entry.check is None] == []


MODULE = """
from rollbox.rewards.registry import score

@score("{name}")
def mine(solution_str, ground_truth, extra_info):
    return 0.25
"""


FIXTURES = """
from rollbox.rewards.registry import Fixture, score

@score("test/odd", fixtures=[{}])
def odd(solution_str, ground_truth, extra_info):
    return 0.25
"""


async def test_a_users_file_is_loaded_once(tmp_path: Path) -> None:
    (tmp_path / "my_reward.py").write_text(MODULE.format(name="test/once"))
    first = load_reward_modules(["my_reward.py"], tmp_path)
    assert load_reward_modules(["my_reward.py"], tmp_path) == first
    assert (await outcome_for("test/once")("", "")).value == 0.25


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("missing.py", None, "missing.py is not a Python file"),
        ("broken.py", "1 / 0", "broken.py failed: ZeroDivisionError"),
        ("leaves.py", "raise SystemExit", "leaves.py failed: SystemExit"),
        ("odd.py", FIXTURES.format('"a"'), r"odd\.py: score 'test/odd' \(.*\): fixtures: must be Fixture"),
        ("nan.py", FIXTURES.format("Fixture('a', 'b', float('nan'))"), r"nan\.py: Fixture.expected: must be a finite"),
        ("none.py", FIXTURES.format("Fixture(None, 'b', 1.0)"), r"none\.py: Fixture.solution_str: must be text"),
        ("no_such_module", None, "'no_such_module' cannot be imported: ModuleNotFoundError"),
        ("taken.py", MODULE.format(name="openai/gsm8k"), "'openai/gsm8k' is registered twice"),
    ],
)
def test_a_wrong_module_is_named(tmp_path: Path, name: str, text: str | None, said: str) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=said):
        load_reward_modules([name], tmp_path)
