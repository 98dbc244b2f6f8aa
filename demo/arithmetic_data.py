"""`rollbox data arithmetic`: the demo's model and questions as a training run wants them."""

from __future__ import annotations

import shutil
from pathlib import Path

from ..training.verl_data import write_parquet
from .questions import generate
from .teach import Progress, ensure_demo_model

_TRAIN_SEED, _HELD_OUT_SEED = 11, 1


def prepare_arithmetic(
    out: Path,
    train_questions: int = 1024,
    test_questions: int = 128,
    steps: int | None = None,
    guess_share: float = 0.0,
    on_progress: Progress | None = None,
) -> list[str]:
    """Write `model/`, `train.parquet` and `test.parquet`.

    Args:
        steps: of teaching; fewer than the demo's leave a model that copies badly.
        guess_share: of its lessons, how many in 1 guessed instead of calling a tool.

    Returns:
        One line for each thing written.

    Raises:
        ConfigError: pyarrow is not installed.
    """
    write_parquet(generate("train", train_questions, seed=_TRAIN_SEED), out / "train.parquet", "train")
    write_parquet(generate("heldout", test_questions, seed=_HELD_OUT_SEED), out / "test.parquet", "test")
    model = ensure_demo_model(steps=steps, guess_share=guess_share, on_progress=on_progress)
    shutil.copytree(model, out / "model", dirs_exist_ok=True)
    return [
        f"{out / 'train.parquet'}: {train_questions} questions",
        f"{out / 'test.parquet'}: {test_questions} held-out questions",
        f"{out / 'model'}: the demo model{_described(steps, guess_share)}",
    ]


def _described(steps: int | None, guess_share: float) -> str:
    taught = f" after {steps} steps of teaching" if steps else ""
    return taught + (f", {guess_share:.0%} of its lessons guesses" if guess_share else "")
