"""Before a run: the checkpoint that verl would go on from, which it does without a word where it finds one."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..schemas.errors import ConfigError

_RANK_FILE = re.compile(r"(?:model|optim|extra_state)_world_size_(\d+)_rank_\d+\.pt")
_SHAPE = ("model_type", "hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")


def check_resume(config: Any) -> list[str]:
    """
    Returns:
        A line for the user where the run goes on from a checkpoint.

    Raises:
        ConfigError: the checkpoint is not there, is of a model of another shape or of another number of GPUs, or leaves
            nothing to train.
    """
    folder = _checkpoint(config.trainer)
    if folder is None:
        return []
    remedy = "trainer.resume_mode=disable begins anew, another trainer.default_local_dir keeps both"
    step, last = int(folder.name.removeprefix("global_step_")), config.trainer.total_training_steps
    if last is not None and step >= int(last):
        raise ConfigError(
            f"trainer.total_training_steps: {last}, and the checkpoint {folder} is of step {step}, so nothing is left "
            f"to train; raise it, or else: {remedy}"
        )
    saved = _read(folder / "actor" / "huggingface" / "config.json")
    given = _read(Path(str(config.actor_rollout_ref.model.path)) / "config.json")
    for key in _SHAPE:
        if saved.get(key) is not None and given.get(key) is not None and saved[key] != given[key]:
            raise ConfigError(
                f"actor_rollout_ref.model.path: {key} is {given[key]!r}, and {saved[key]!r} in the checkpoint {folder} "
                f"that verl would load into it; {remedy}"
            )
    _check_gpus(config.trainer, folder, remedy)
    return [f"goes on from the checkpoint {folder}; {remedy}"]


def _check_gpus(trainer: Any, folder: Path, remedy: str) -> None:
    """verl's FSDP writes a file for each rank, and each looks for its own by the number of all ranks."""
    names = map(_RANK_FILE.fullmatch, _names(folder / "actor"))
    sizes = {int(name[1]) for name in names if name is not None}
    gpus = int(trainer.n_gpus_per_node) * int(trainer.nnodes)
    if sizes and gpus not in sizes:
        of = " or ".join(map(str, sorted(sizes)))
        raise ConfigError(
            f"trainer.n_gpus_per_node times trainer.nnodes is {gpus}, and the checkpoint {folder} is of {of} "
            f"processes, which verl cannot divide anew; train with {of}, or take its weights alone: "
            f"`python -m verl.model_merger merge --backend fsdp --local_dir {folder / 'actor'} --target_dir DIR`, "
            f"actor_rollout_ref.model.path=DIR and another trainer.default_local_dir; or else: {remedy}"
        )


def _names(folder: Path) -> list[str]:
    """Of its files; none where there is no such folder, as on a machine that holds no part of the checkpoint."""
    try:
        return [path.name for path in folder.iterdir()]
    except OSError:
        return []


def _checkpoint(trainer: Any) -> Path | None:
    """verl's rule: the latest of the run's folder, or the one that is named."""
    if trainer.resume_mode == "auto":
        folder = Path(trainer.default_local_dir).absolute()
        try:
            step = (folder / "latest_checkpointed_iteration.txt").read_text(encoding="utf-8").strip()
        except OSError:
            return None
        latest = folder / f"global_step_{step}"
        return latest if step.isdigit() and latest.is_dir() else None
    if trainer.resume_mode == "resume_path":
        named = Path(str(trainer.resume_from_path)).absolute()
        if not named.is_dir() or not named.name.removeprefix("global_step_").isdigit():
            raise ConfigError(
                f"trainer.resume_from_path: must be a folder global_step_N of a checkpoint (got "
                f"{trainer.resume_from_path!r})"
            )
        return named
    return None


def _read(file: Path) -> Mapping[str, Any]:
    """A model's configuration; empty where there is no such file, as with the name of a model on a hub."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
