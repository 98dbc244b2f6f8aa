"""`rollbox rescore`: new rewards for saved trajectories, without a model."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rollbox.rewards.compose import RewardComposition
from rollbox.rewards.registry import REGISTRY
from rollbox.rewards.trajectory import default_rewards, score_trajectory
from rollbox.rollout.report.files import TRAJECTORIES
from rollbox.rollout.rescore import RESCORED, examples, rescore, write_rescored
from rollbox.rollout.responses import read_trajectories
from rollbox.schemas.errors import ConfigError
from rollbox.schemas.reward_config import RewardConfig
from rollbox.schemas.trajectory import Trajectory
from rollbox.schemas.validation import validated

from ..rewards.trajectories import call, trajectory


@pytest.fixture
async def run_dir(tmp_path: Path) -> Path:
    lines = []
    for number, answer in enumerate(["#### 5", "#### 4", "the answer is 5"]):
        made = trajectory(answer, records=[call(0, reward=0.5)])
        made.trajectory_id = f"s.{number}"
        made.rewards = await score_trajectory(made)
        lines.append(made.model_dump_json())
    failed = trajectory(infra_failed=True)
    (tmp_path / TRAJECTORIES).write_text("\n".join([*lines, failed.model_dump_json()]) + "\n")
    return tmp_path


async def test_the_same_rewards_change_nothing(run_dir: Path) -> None:
    changes = await rescore(read_trajectories(run_dir), default_rewards())
    assert [change.moved for change in changes] == [False] * 4
    assert changes[3].after is None


def test_what_a_run_writes_is_read_whatever_the_model_said(tmp_path: Path) -> None:
    made = trajectory("a\u2028b\x85c #### 5")
    (tmp_path / TRAJECTORIES).write_text(made.model_dump_json() + "\n", encoding="utf-8")
    assert read_trajectories(tmp_path) == [made]


def test_what_changed_is_shown_and_written(run_dir: Path) -> None:
    before = (run_dir / TRAJECTORIES).read_bytes()
    (run_dir / "rewards.yaml").write_text("parts: {correct: {kind: outcome, weight: 2.0}}\n")
    command = [sys.executable, "-m", "rollbox.cli", "rescore", str(run_dir), "--rewards", str(run_dir / "rewards.yaml")]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 0, result.stderr
    assert "3 of 4 trajectories changed" in result.stdout
    assert "s.1: +0.600 -> +0.000" in result.stdout
    assert "tool/python: +0.500 -> -" in result.stdout
    written = [Trajectory.model_validate(json.loads(line)) for line in (run_dir / RESCORED).read_text().splitlines()]
    assert [made.rewards and made.rewards.total for made in written] == [2.0, 0.0, 2.0, None]
    assert (run_dir / TRAJECTORIES).read_bytes() == before


async def test_what_waits_is_scored_at_the_same_time_and_stays_in_order(run_dir: Path) -> None:
    everyone = asyncio.Barrier(3)

    @REGISTRY.score("test/rescore_waits")
    async def waits(solution_str: str, ground_truth: str, extra_info: dict[str, Any]) -> float:
        await everyone.wait()  # one after the other, the first would wait for ever
        if solution_str == "#### 4":
            raise ValueError("[/b] no")
        return float(len(solution_str))

    parts = {"outcome": {"function": "test/rescore_waits"}}
    changes = await rescore(
        read_trajectories(run_dir), RewardComposition(validated(RewardConfig, {"parts": parts}, ""))
    )
    totals = [change.after and change.after.total for change in changes]
    assert totals == [len("#### 5"), None, len("the answer is 5"), None]
    assert "raised ValueError: [/b] no" in str(changes[1].error)
    lines = examples(changes)
    assert lines[0].startswith("could not be scored: 1, such as s.1: score 'test/rescore_waits'")
    assert any(line.startswith("s.1: +0.600 -> - (") for line in lines)  # no score is not a score of 0


def test_a_run_that_was_killed_can_be_rescored_and_any_text_in_it(run_dir: Path) -> None:
    odd = trajectory("a\u2028b\x85c\u2029 #### 5")
    with (run_dir / TRAJECTORIES).open("a", encoding="utf-8") as file:
        file.write(odd.model_dump_json() + "\n" + odd.model_dump_json()[:50])
    found = read_trajectories(run_dir)
    assert len(found) == 5
    assert found[4].answer_text == "a\u2028b\x85c\u2029 #### 5"


def test_what_cannot_be_scored_at_all_writes_nothing(run_dir: Path) -> None:
    (run_dir / "mine.py").write_text(
        "from rollbox.rewards.registry import score\n\n@score('test/none')\ndef f(*_):\n    raise ValueError('[/b]')\n"
    )
    rewards = run_dir / "rewards.yaml"
    rewards.write_text("modules: [mine.py]\nparts: {outcome: {function: test/none}}\n")
    (run_dir / RESCORED).write_text("from before")
    command = [sys.executable, "-m", "rollbox.cli", "rescore", str(run_dir), "--rewards", str(rewards)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 1
    assert "no trajectory could be scored, so nothing was written: score 'test/none'" in result.stderr
    assert "raised ValueError: [/b]" in result.stderr
    assert "Traceback" not in result.stderr
    assert (run_dir / RESCORED).read_text() == "from before"


def test_a_file_that_cannot_be_written_is_named_and_leaves_nothing(run_dir: Path) -> None:
    (run_dir / RESCORED).mkdir()
    with pytest.raises(ConfigError, match=r"rescored\.jsonl: cannot be written"):
        write_rescored(read_trajectories(run_dir), run_dir)
    assert sorted(path.name for path in run_dir.iterdir()) == [RESCORED, TRAJECTORIES]


def test_a_directory_without_trajectories(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"trajectories\.jsonl: cannot be read"):
        read_trajectories(tmp_path)
