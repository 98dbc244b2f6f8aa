"""Programs scored by tests, in a real sandbox."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from rollbox.rewards.code_tests import in_outs, program_in, share
from rollbox.rewards.code_tests import score as code_score
from rollbox.rewards.compose import RewardComposition
from rollbox.rewards.registry import outcome_for
from rollbox.rewards.sandbox_access import ScoringSandbox
from rollbox.schemas.errors import ConfigError, InfraError
from rollbox.schemas.reward_config import RewardConfig

from .trajectories import sample, trajectory

# Codeforces 4A, "Watermelon", with its published example.
WATERMELON = json.dumps({"inputs": ["8\n", "3\n", "2\n"], "outputs": ["YES\n", "NO\n", "NO\n"]})
RIGHT = "```python\nw = int(input())\nprint('YES' if w > 2 and w % 2 == 0 else 'NO')\n```"
# LeetCode 1, "Two Sum", in the layout of APPS.
TWO_SUM = json.dumps({"fn_name": "twoSum", "inputs": [[[2, 7, 11, 15], 9], [[3, 3], 6]], "outputs": [[0, 1], [0, 1]]})
CLASS = """```python
class Solution:
    def twoSum(self, nums, target):
        seen = {}
        for i, n in enumerate(nums):
            if target - n in seen:
                return [seen[target - n], i]
            seen[n] = i
```"""


@pytest.fixture
async def scoring() -> AsyncIterator[ScoringSandbox]:
    async with ScoringSandbox() as opened:
        yield opened


@pytest.mark.parametrize(
    ("text", "truth", "value", "passed"),
    [
        (RIGHT, WATERMELON, 1.0, 1.0),
        ("First:\n```python\nprint('?')\n```\nBetter:\n" + RIGHT, WATERMELON, 1.0, 1.0),
        ("```python\nprint('NO')\n```", WATERMELON, 0.0, 2 / 3),
        ("```python\nprint('YES'\n```", WATERMELON, 0.0, 0.0),
        ("```cobol\nSTOP RUN.\n```", WATERMELON, 0.0, 0.0),
        ("print('NO')", WATERMELON, 0.0, 0.0),
        (CLASS, TWO_SUM, 1.0, 1.0),
        ("```\ndef twoSum(nums, target):\n    return [0, 1]\n```", TWO_SUM, 1.0, 1.0),
    ],
)
async def test_programs(scoring: ScoringSandbox, text: str, truth: str, value: float, passed: float) -> None:
    scoring.use()
    found = await code_score(text, truth)
    assert (found.value, found.logged["passed"]) == (value, pytest.approx(passed))
    shared = await share(text, truth)
    assert (shared.value, shared.correct) == (pytest.approx(passed), value == 1.0)


async def test_a_sandbox_that_is_gone_is_never_a_zero() -> None:
    config = RewardConfig(parts={"outcome": None}, sandbox_url="http://127.0.0.1:9")  # type: ignore[dict-item]
    async with RewardComposition(config) as rewards:
        rewards._sandbox._sandbox._max_retries = 0
        with pytest.raises(InfraError, match="cannot be reached"):
            await rewards.score(trajectory(RIGHT, of=sample(WATERMELON, "taco")))


async def test_without_a_sandbox_the_remedy_is_named() -> None:
    with pytest.raises(ConfigError, match=r"use `async with` of the rewards|not open"):
        await outcome_for("taco")(RIGHT, WATERMELON)


def test_the_last_fenced_block_is_the_program() -> None:
    assert program_in("```py\na\n```\n```c++\nb\n```") == ("b\n", "cpp")
    assert program_in("<think>```py\na\n```</think>") is None
    assert program_in("```python\nnever closed") is None
    assert program_in('```python title="a.py"\na\n```') == ("a\n", "python")


def test_what_is_shown_behind_the_program_is_not_the_program() -> None:
    program = "```python\na\n```\n"
    for shown in (
        "```\n1\n```",
        "```text\n1\n```",
        "```output\n1\n```",
        "```bash\npython a.py\n```",
        "```json\n1\n```",
    ):
        assert program_in(program + shown) == ("a\n", "python")
    assert program_in("```text\n1\n```\n```\na\n```\n```text\n1\n```") == ("a\n", "python")
    assert program_in("```bash\nls\n```") == ("ls\n", "bash")


def test_tests_that_are_nested_without_end_are_no_tests() -> None:
    with pytest.raises(ConfigError, match="ground_truth: not tests of a program"):
        in_outs("[" * 100_000)
