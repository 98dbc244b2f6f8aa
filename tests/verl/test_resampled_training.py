"""Two real steps of verl's V1 trainer on a CPU, of which half of the trajectories are trained: GRPO-RoC."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest

from rollbox.rewards.answers import answer_count

from .test_grpo import GROUP, PROMPTS, folder, train  # noqa: F401 - folder is a fixture

pytestmark = [pytest.mark.verl, pytest.mark.timeout(1500)]

KEEP = GROUP // 2


@pytest.fixture(scope="module")
def run(folder: Path) -> dict[int, dict[str, Any]]:  # noqa: F811
    return train(
        folder,
        "resampled",
        f"+rollbox.resample={{keep: {KEEP}}}",
        f"actor_rollout_ref.actor.ppo_mini_batch_size={PROMPTS // 2}",
        "trainer.total_training_steps=2",
        "trainer.save_freq=-1",
    )


@pytest.fixture(scope="module")
def rows(run: dict[int, dict[str, Any]], folder: Path) -> dict[int, list[dict[str, Any]]]:  # noqa: F811
    files = {step: folder / "resampled" / f"step_{step:06d}.jsonl" for step in (1, 2)}
    return {step: [json.loads(line) for line in file.read_text().splitlines()] for step, file in files.items()}


def groups(rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["key"].split("_")[0], []).append(row)
    return found


def test_half_of_each_question_is_trained_and_both_kinds_keep_their_share(
    rows: dict[int, list[dict[str, Any]]],
) -> None:
    for found in rows.values():
        assert len(found) == PROMPTS * GROUP
        for group in groups(found).values():
            assert sum(row["trained"] for row in group) == KEEP
            sound = [row for row in group if not row["record"]["infra_failed"]]
            right = sum(row["reward_info"]["acc"] for row in sound)
            kept = [row for row in sound if row["trained"]]
            assert len(kept) == min(KEEP, len(sound))
            if 0 < right < len(sound) > KEEP:
                share = len(kept) * right / len(sound)
                assert abs(sum(row["reward_info"]["acc"] for row in kept) - share) <= 1


def test_advantages_are_those_of_the_kept(
    run: dict[int, dict[str, Any]], rows: dict[int, list[dict[str, Any]]]
) -> None:
    for step, found in rows.items():
        kept = [row for row in found if row["trained"] and not row["record"]["infra_failed"]]
        advantages = []
        for group in groups(kept).values():
            scores = [sum(row["scores"]) for row in group]
            mean, deviation = (fmean(scores), stdev(scores)) if len(scores) > 1 else (0.0, 1.0)
            advantages += [(score - mean) / (deviation + 1e-6) for score in scores]
        assert run[step]["critic/advantages/max"] == pytest.approx(max(advantages), abs=1e-4)
        assert run[step]["critic/advantages/min"] == pytest.approx(min(advantages), abs=1e-4)
        assert run[step]["critic/score/mean"] == pytest.approx(fmean(sum(row["scores"]) for row in kept), abs=1e-5)
        assert run[step]["actor/grad_norm"] > 0


def test_what_was_left_out_is_counted_and_still_measured(
    run: dict[int, dict[str, Any]], rows: dict[int, list[dict[str, Any]]]
) -> None:
    for step, found in rows.items():
        assert run[step]["rollbox/resample/left_out_total"] == PROMPTS * (GROUP - KEEP)
        sound = [row for row in found if not row["record"]["infra_failed"]]
        everything = fmean(sum(row["scores"]) for row in sound)
        assert run[step]["rollbox/reward/all/mean"] == pytest.approx(everything, abs=1e-5)
        for name, of in (("before", sound), ("after", [row for row in sound if row["trained"]])):
            right = [penalty(row) for row in of if row["reward_info"]["acc"]]
            assert run[step][f"rollbox/resample/correct_penalty_{name}/mean"] == pytest.approx(fmean(right))


def penalty(row: dict[str, Any]) -> float:
    """p_err + p_format of rStar2-Agent (arXiv 2508.20722), from the record alone."""
    calls, texts = row["record"]["calls"], row["record"]["assistant_texts"]
    errors = (
        sum(call["error_kind"] not in (None, "infra", "overloaded") for call in calls) / len(calls) if calls else 0.5
    )
    answers = sum(map(answer_count, texts))
    return errors + (1.0 if answers == 0 else min(1.0, (answers - 1) / len(texts)))
