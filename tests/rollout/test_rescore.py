"""`rollbox rescore`: new rewards for saved trajectories, without a model."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rollbox.rewards.trajectory import default_rewards, score_trajectory
from rollbox.rollout.report.files import TRAJECTORIES
from rollbox.rollout.rescore import RESCORED, rescore
from rollbox.rollout.responses import read_trajectories
from rollbox.schemas.errors import ConfigError
from rollbox.schemas.trajectory import Trajectory

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


def test_a_directory_without_trajectories(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"trajectories\.jsonl: cannot be read"):
        read_trajectories(tmp_path)
