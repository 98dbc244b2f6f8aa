"""The worked examples of docs/rewards.md, as a reader would copy them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rollbox.rewards.compose import RewardComposition
from rollbox.rewards.registry import outcome_for
from rollbox.rewards.verify import verify

from .trajectories import sample, trajectory

DOCS = Path(__file__).parents[2] / "docs" / "rewards.md"


def example(first_line: str, language: str) -> str:
    blocks = re.findall(rf"```{language}\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    [found] = [block for block in blocks if block.startswith(first_line)]
    return str(found)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("docs")
    (made / "my_reward.py").write_text(example("# my_reward.py", "python"))
    (made / "rewards.yaml").write_text(example("# rollbox rollout", "yaml"))
    return made


async def test_the_function_and_the_file_score(folder: Path) -> None:
    rewards = RewardComposition.load(folder / "rewards.yaml")
    question = sample("Lima", "my_data/capitals_of_america")
    rewards.check_samples([question])
    right = await rewards.score(trajectory("<think>Peru</think><answer>x</answer> Lima", of=question))
    assert right is not None
    assert (right.parts["outcome"], right.parts["cheap"], right.correct) == (1.0, pytest.approx(0.2), True)
    wrong = await rewards.score(trajectory("Cusco", of=question))
    assert wrong is not None
    assert (wrong.total, wrong.correct) == (0.0, False)


async def test_what_verify_says_of_it(folder: Path) -> None:
    RewardComposition.load(folder / "rewards.yaml")
    found = [finding async for finding in verify([outcome_for("my_data/capitals")])]
    assert {finding.check: finding.problem for finding in found if finding.problem} == {}
