"""GRPO-RoC in a training batch: which of the trajectories that were rolled out are trained on."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from ..rewards.answers import answer_count
from ..schemas.errors import INFRA_KINDS, ConfigError
from .algorithms.resample import Quality, resample_on_correct
from .batch_rows import BatchRow


class ResampleSettings(BaseModel):
    """The `rollbox.resample` section.

    Attributes:
        keep: trajectories of each question that are trained on, of `rollout.n` that are rolled out (the paper: half).
        seed: of the choice, which is the same for the same seed, step and trajectories.
    """

    model_config = ConfigDict(extra="forbid")

    keep: int = Field(ge=1)
    seed: int = Field(default=0, ge=0)


def quality_of(row: BatchRow) -> Quality:
    """What the paper looks at in a trajectory.

    Raises:
        ConfigError: another agent loop ran it, so that nothing is known of its calls.
    """
    if row.record is None:
        raise ConfigError("rollbox.resample: needs the agent loop rollbox_agent; another one ran a trajectory")
    calls, texts = row.record["calls"], row.record["assistant_texts"]
    # What failed through our fault says nothing of the model.
    errors = sum(call["error_kind"] not in (None, *INFRA_KINDS) for call in calls)
    return Quality(len(calls), errors, sum(map(answer_count, texts)), len(texts))


def resampled(rows: Sequence[BatchRow], settings: ResampleSettings, step: int) -> tuple[list[int], dict[str, float]]:
    """(positions of the rows to train on, in order; metrics).

    A trajectory that failed through our fault is kept only where its question lacks others: it is masked, and keeps the
    batch's size.

    Raises:
        ConfigError: the reward does not say what is correct (`acc`), or see `quality_of`.
    """
    rng = np.random.default_rng([settings.seed, step])
    questions: dict[str, list[int]] = {}
    for position in sorted(range(len(rows)), key=lambda position: rows[position].key):
        questions.setdefault(rows[position].key.rsplit("_", 2)[0], []).append(position)
    kept: list[int] = []
    for positions in questions.values():
        sound = [position for position in positions if not rows[position].infra_failed]
        failed = [position for position in positions if rows[position].infra_failed]
        if len(sound) > settings.keep:
            correct = [_is_correct(rows[position]) for position in sound]
            quality = [quality_of(rows[position]) for position in sound]
            sound = [sound[i] for i in resample_on_correct(correct, quality, settings.keep, rng)]
        kept += sound + failed[: settings.keep - len(sound)]
    return sorted(kept), _metrics(rows, kept)


def _is_correct(row: BatchRow) -> bool:
    found = row.reward_info.get("acc")
    if not isinstance(found, bool | int | float):
        raise ConfigError(f"rollbox.resample: the reward must give `acc`, 1 for a right answer (got {found!r})")
    return found > 0.5


def _metrics(rows: Sequence[BatchRow], kept: Sequence[int]) -> dict[str, float]:
    """How many were left out, and the mean penalty of the right ones before and after, which must fall."""
    metrics: dict[str, float] = {"resample/left_out_total": len(rows) - len(kept)}
    for name, positions in (("before", range(len(rows))), ("after", kept)):
        sound = [rows[position] for position in positions if not rows[position].infra_failed]
        if sound:
            metrics[f"resample/correct_share_{name}/mean"] = fmean(map(_is_correct, sound))
        if right := [quality_of(row).penalty for row in sound if _is_correct(row)]:
            metrics[f"resample/correct_penalty_{name}/mean"] = fmean(right)
    return metrics
