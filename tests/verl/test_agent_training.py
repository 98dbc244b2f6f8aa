"""Two real steps of verl's V1 trainer on a CPU with a rewards file, GiGPO's advantages and the turn-clipped loss."""

from __future__ import annotations

import json
import math
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from rollbox.rewards.shaping import call_cost_from_optimum
from rollbox.training.algorithms.states import split_uids
from rollbox.training.diagnose.checks import diagnose
from rollbox.training.diagnose.logs import read_logs

from .test_grpo import GROUP, PROMPTS, folder, train  # noqa: F401 - folder is a fixture

pytestmark = [pytest.mark.verl, pytest.mark.timeout(1500)]

REWARDS = """
parts:
  correct: {kind: outcome}
  format: {weight: 0.1}
  tools: {weight: 0.1, placement: turn}
  void_turn:
  cheap: {kind: call_cost, optimal_calls: group, weight: 0.2, only_if: {part: correct, at_least: 1}}
"""


@pytest.fixture(scope="module")
def run(folder: Path) -> dict[int, dict[str, Any]]:  # noqa: F811
    file = folder / "rewards.yaml"
    file.write_text(REWARDS)
    return train(
        folder,
        "agent",
        "~rollbox.rewards",
        f"+rollbox.rewards={{file: {file}}}",
        "+rollbox.state_groups=true",
        "algorithm.adv_estimator=rollbox_gigpo",
        "+algorithm.rollbox.turn_weight=0.5",
        "actor_rollout_ref.actor.policy_loss.loss_mode=rollbox_turn_clip",
        "trainer.total_training_steps=2",
        "trainer.save_freq=-1",
    )


def test_the_model_is_trained_each_step(run: dict[int, dict[str, Any]]) -> None:
    assert sorted(run) == [1, 2]
    for metrics in run.values():
        assert metrics["actor/grad_norm"] > 0
        assert math.isfinite(metrics["actor/pg_loss"])
        assert metrics["rollbox/tool/calculator/calls_total"] > 0


def test_every_part_is_logged_and_lies_at_its_token(run: dict[int, dict[str, Any]], folder: Path) -> None:  # noqa: F811
    for step, metrics in run.items():
        lines = (folder / "agent" / f"step_{step:06d}.jsonl").read_text().splitlines()
        rows = [json.loads(line) for line in lines]
        assert len(rows) == PROMPTS * GROUP
        masked = [
            row for row in rows if row["record"]["infra_failed"]
        ]  # the calculator has a bug that it shows at times
        assert metrics["rollbox/infra_failed_total"] == len(masked)
        assert all(row["record"]["rewards"] is None and not any(row["scores"]) for row in masked)
        rows = [row for row in rows if row not in masked]
        for row in rows:
            placed = row["record"]["rewards"]["placed"]
            found = {position: score for position, score in enumerate(row["scores"]) if score}
            assert found == pytest.approx({position: reward for position, reward in placed if reward}, abs=1e-6)
            assert all(row["response_mask"][position] for position in found)
        totals = [row["record"]["rewards"]["total"] for row in rows]
        assert metrics["rollbox/reward/all/mean"] == pytest.approx(fmean(totals), abs=1e-5)
        assert metrics["critic/score/mean"] == pytest.approx(fmean(totals), abs=1e-5)  # what verl trains on
        parts = ("correct", "format", "tools", "void_turn", "cheap")
        assert {f"rollbox/reward/{part}/mean" for part in parts} <= set(metrics)
        assert 0 <= metrics["rollbox/group/zero_std_share/mean"] <= 1


def test_calls_are_measured_by_the_best_of_the_group(run: dict[int, dict[str, Any]], folder: Path) -> None:  # noqa: F811
    earned = []
    for step, metrics in run.items():
        rows = [json.loads(line) for line in (folder / "agent" / f"step_{step:06d}.jsonl").read_text().splitlines()]
        groups: dict[str, list[dict[str, Any]]] = {}
        for row in rows:
            if not row["record"]["infra_failed"]:
                groups.setdefault(row["key"].split("_")[0], []).append(row["record"])
        for group in groups.values():
            calls = [sum(call["executed"] for call in record["calls"]) for record in group]
            right = [record["rewards"]["correct"] for record in group]
            fewest = min((m for m, is_right in zip(calls, right, strict=True) if is_right), default=0)
            for m, is_right, record in zip(calls, right, group, strict=True):
                value = call_cost_from_optimum(m, fewest, 4.0) if is_right else 0.0
                assert record["rewards"]["parts"]["cheap"] == pytest.approx(0.2 * value)
                earned.append(value)
        assert metrics["rollbox/reward/cheap/mean"] == pytest.approx(
            fmean(record["rewards"]["parts"]["cheap"] for group in groups.values() for record in group)
        )
    assert any(earned)


def test_turns_of_a_question_share_states(run: dict[int, dict[str, Any]], folder: Path) -> None:  # noqa: F811
    rows = [json.loads(line) for line in (folder / "agent" / "step_000001.jsonl").read_text().splitlines()]
    first: dict[str, set[str]] = {}
    for row in rows:
        first.setdefault(row["key"].rsplit("_", 2)[0], set()).add(row["record"]["states"][0])
    assert len(first) == PROMPTS
    assert all(len(states) == 1 for states in first.values())
    assert split_uids(list(first))[1] == [None] * PROMPTS  # keys stay plain: only the estimator's ids are told


def test_its_log_is_read_by_diagnose(run: dict[int, dict[str, Any]], folder: Path) -> None:  # noqa: F811
    for name in ("agent.log", "agent.jsonl", "agent-events"):
        series = read_logs(folder / name)
        assert len(series["actor/grad_norm"]) == 2
        for metric in ("rollbox/tool/calculator/calls_total", "rollbox/reward/correct/mean", "rollbox/turns/mean"):
            assert len(series[metric]) == 2
        assert diagnose(series) == []
