"""What ends a training run: a worker that dies, and too many trajectories that fail through our fault."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from .deadly_calculator import DeadlyCalculator
from .test_grpo import GROUP, PROMPTS, folder, launch, train  # noqa: F401 - folder is a fixture

pytestmark = [pytest.mark.verl, pytest.mark.timeout(1500)]


def test_a_dead_worker_ends_the_run_and_the_next_one_counts_each_trajectory_once(
    folder: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tools = yaml.safe_load((folder / "tools.yaml").read_text())
    tools["tools"][0]["class_name"] = f"deadly_calculator.{DeadlyCalculator.__name__}"
    (folder / "deadly.yaml").write_text(yaml.safe_dump(tools))
    monkeypatch.setenv("DEADLY_FOLDER", str(folder))
    overrides = (
        f"multi_turn.tools_config_file={folder}/deadly.yaml",
        "trainer.total_training_steps=2",
        "trainer.save_freq=1",
    )

    code, log = launch(folder, "deadly", *overrides)
    assert (folder / "killed").exists()
    assert code != 0
    assert "died with prompts in work" in log
    assert "trainer.resume_mode=auto" in log
    assert not (folder / "deadly" / "step_000002.jsonl").exists()

    resumed = train(folder, "deadly", *overrides)
    assert sorted(resumed) == [2]
    for step in (1, 2):
        lines = (folder / "deadly" / f"step_{step:06d}.jsonl").read_text().splitlines()
        ids = [json.loads(line)["record"]["trajectory_id"] for line in lines]
        assert len(set(ids)) == len(ids) == PROMPTS * GROUP


def test_too_many_failures_of_ours_end_the_run_and_are_named(folder: Path) -> None:  # noqa: F811
    code, log = launch(
        folder,
        "masked",
        "++rollbox.max_infra_failed_share=0.01",
        "trainer.total_training_steps=2",
        "trainer.save_freq=-1",
        "trainer.resume_mode=disable",
    )
    assert code != 0
    assert "InfraError" in log
    assert "a bug in the tool" in log
