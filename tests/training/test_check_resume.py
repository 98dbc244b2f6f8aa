"""What a run would go on from is told, and refused where it cannot be gone on from."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rollbox.schemas.errors import ConfigError
from rollbox.training.check_resume import check_resume


def config_of(folder: Path, **trainer: Any) -> Any:
    model = folder / "model"
    model.mkdir(exist_ok=True)
    (model / "config.json").write_text(json.dumps({"model_type": "qwen2", "hidden_size": 64}))
    found = {"resume_mode": "auto", "resume_from_path": None, "total_training_steps": None, **trainer}
    found = {"n_gpus_per_node": 4, "nnodes": 2, **found}
    return SimpleNamespace(
        trainer=SimpleNamespace(default_local_dir=str(folder / "checkpoints"), **found),
        actor_rollout_ref=SimpleNamespace(model=SimpleNamespace(path=str(model))),
    )


def checkpoint(folder: Path, step: int, hidden_size: int = 64) -> Path:
    made = folder / "checkpoints" / f"global_step_{step}"
    saved = made / "actor" / "huggingface"
    saved.mkdir(parents=True)
    (saved / "config.json").write_text(json.dumps({"model_type": "qwen2", "hidden_size": hidden_size}))
    (folder / "checkpoints" / "latest_checkpointed_iteration.txt").write_text(str(step))
    return made


def test_a_run_without_a_checkpoint_says_nothing(tmp_path: Path) -> None:
    assert check_resume(config_of(tmp_path)) == []
    checkpoint(tmp_path, 20)
    assert check_resume(config_of(tmp_path, resume_mode="disable")) == []


def test_the_checkpoint_is_named(tmp_path: Path) -> None:
    checkpoint(tmp_path, 10)
    latest = checkpoint(tmp_path, 20)
    [line] = check_resume(config_of(tmp_path, total_training_steps=21))
    assert line.startswith(f"goes on from the checkpoint {latest}; trainer.resume_mode=disable begins anew")
    named = tmp_path / "checkpoints" / "global_step_10"
    [line] = check_resume(config_of(tmp_path, resume_mode="resume_path", resume_from_path=str(named)))
    assert str(named) in line


def test_a_model_of_another_shape_is_refused(tmp_path: Path) -> None:
    checkpoint(tmp_path, 20, hidden_size=32)
    with pytest.raises(ConfigError, match=r"model\.path: hidden_size is 64, and 32 in the checkpoint .*resume_mode"):
        check_resume(config_of(tmp_path))


def ranks(made: Path, number: int, *kinds: str) -> None:
    for kind in kinds:
        for rank in range(number):
            (made / "actor" / f"{kind}_world_size_{number}_rank_{rank}.pt").touch()


@pytest.mark.parametrize("kinds", [("model", "optim", "extra_state"), ("extra_state",)])
def test_a_checkpoint_of_another_number_of_gpus_is_refused(kinds: tuple[str, ...], tmp_path: Path) -> None:
    made = checkpoint(tmp_path, 20)
    ranks(made, 8, *kinds)
    assert len(check_resume(config_of(tmp_path))) == 1
    said = r"trainer\.n_gpus_per_node times trainer\.nnodes is 4, and the checkpoint .*global_step_20 is of 8 processes"
    with pytest.raises(ConfigError, match=said) as raised:
        check_resume(config_of(tmp_path, nnodes=1))
    assert f"--local_dir {made / 'actor'}" in str(raised.value)
    assert "trainer.resume_mode=disable" in str(raised.value)
    ranks(made, 4, *kinds)  # the step was written again by fewer
    assert len(check_resume(config_of(tmp_path, nnodes=1))) == 1


def test_a_checkpoint_without_files_of_ranks_says_nothing_of_gpus(tmp_path: Path) -> None:
    """Megatron's, or one whose parts lie on other machines."""
    made = checkpoint(tmp_path, 20)
    (made / "actor" / "dist_ckpt").mkdir()
    assert len(check_resume(config_of(tmp_path))) == 1
    shutil.rmtree(made / "actor")
    assert len(check_resume(config_of(tmp_path))) == 1


def test_a_run_that_is_over_is_refused(tmp_path: Path) -> None:
    checkpoint(tmp_path, 20)
    with pytest.raises(ConfigError, match=r"total_training_steps: 20, and .*step 20, so nothing is left to train"):
        check_resume(config_of(tmp_path, total_training_steps=20))


@pytest.mark.parametrize("named", [None, "gone/global_step_3", "checkpoints"])
def test_a_named_checkpoint_must_be_there(named: str | None, tmp_path: Path) -> None:
    checkpoint(tmp_path, 20)
    path = None if named is None else str(tmp_path / named)
    with pytest.raises(ConfigError, match="resume_from_path: must be a folder global_step_N of a checkpoint"):
        check_resume(config_of(tmp_path, resume_mode="resume_path", resume_from_path=path))
