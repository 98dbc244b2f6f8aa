"""Real GRPO steps of verl's V1 trainer on a CPU: Ray, FSDP2, weight sync, our loop, tools, sandbox and rewards."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest
import yaml

from rollbox.demo.questions import generate
from rollbox.demo.teach import ensure_demo_model
from rollbox.training.launch import prepare
from rollbox.training.verl_data import write_parquet

from .rewarded_calculator import EXTRA, STEP, WHOLE, RewardedCalculator

# Two runs, each of which starts Ray and seven processes that import torch and verl.
pytestmark = [pytest.mark.verl, pytest.mark.timeout(1500)]

ROOT = Path(__file__).parents[2]
PROMPTS, GROUP = 4, 8
TOOL_WEIGHT = 0.1


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data, and the shipped tools with another calculator."""
    made: Path = tmp_path_factory.mktemp("grpo")
    write_parquet(generate("train", 64, seed=5), made / "train.parquet", "train")
    write_parquet(generate("heldout", 4, seed=5), made / "test.parquet", "test")
    tools = yaml.safe_load((ROOT / "tools_config" / "math.yaml").read_text())
    tools["tools"][0]["class_name"] = f"rewarded_calculator.{RewardedCalculator.__name__}"
    (made / "tools.yaml").write_text(yaml.safe_dump(tools))
    return made


def launch(folder: Path, name: str, *overrides: str) -> tuple[int, str]:
    """Run the trainer, which writes NAME.jsonl and records in NAME/; exit code and log."""
    log, metrics = folder / f"{name}.log", folder / f"{name}.jsonl"
    command, environment, _ = prepare(
        "cpu_arithmetic",
        [
            f"data.train_files={folder}/train.parquet",
            f"data.val_files={folder}/test.parquet",
            f"multi_turn.tools_config_file={folder}/tools.yaml",
            f"actor_rollout_ref.model.path={ensure_demo_model()}",
            f"data.train_batch_size={PROMPTS}",
            "data.shuffle=False",  # the kinds of question come in turn, so each step has one for Python
            f"actor_rollout_ref.actor.ppo_mini_batch_size={PROMPTS}",
            f"actor_rollout_ref.rollout.n={GROUP}",
            # Hot enough that a group of the taught model holds right and wrong answers.
            "actor_rollout_ref.rollout.temperature=1.3",
            f"rollbox.rewards.tool={TOOL_WEIGHT}",
            f"+rollbox.records_dir={folder}/{name}",
            "+rollbox.max_infra_failed_share=0.9",
            "trainer.logger=[console,file,tensorboard]",
            f"trainer.default_local_dir={folder}/checkpoints",
            "trainer.save_freq=2",
            "trainer.resume_mode=auto",
            f"hydra.run.dir={folder}/hydra",
            *overrides,
        ],
        check=False,
    )
    environment["VERL_FILE_LOGGER_PATH"] = str(metrics)
    environment["TENSORBOARD_DIR"] = str(folder / f"{name}-events")
    environment["PYTHONPATH"] = str(Path(__file__).parent)
    with log.open("w") as file:
        done = subprocess.run(command, env=environment, stdout=file, stderr=subprocess.STDOUT, timeout=700, cwd=folder)
    return done.returncode, log.read_text(errors="replace")


def train(folder: Path, name: str, *overrides: str) -> dict[int, dict[str, Any]]:
    """Run the trainer to its end; metrics by step."""
    code, text = launch(folder, name, *overrides)
    assert code == 0, text[-8000:]
    found: dict[int, dict[str, Any]] = {}
    for line in (folder / f"{name}.jsonl").read_text().splitlines():
        entry = json.loads(line)
        found.setdefault(entry["step"], {}).update(entry["data"])
    return found


@pytest.fixture(scope="module")
def run(folder: Path) -> dict[int, dict[str, Any]]:
    return train(folder, "first", "trainer.total_training_steps=2")


@pytest.fixture(scope="module")
def rows(run: dict[int, dict[str, Any]], folder: Path) -> dict[int, list[dict[str, Any]]]:
    files = {step: folder / "first" / f"step_{step:06d}.jsonl" for step in (1, 2)}
    return {step: [json.loads(line) for line in file.read_text().splitlines()] for step, file in files.items()}


def test_the_model_is_trained_each_step(run: dict[int, dict[str, Any]]) -> None:
    assert sorted(run) == [1, 2]
    for step in run:
        assert run[step]["actor/grad_norm"] > 0


def test_the_server_samples_with_the_trainers_weights(run: dict[int, dict[str, Any]]) -> None:
    for step in run:
        assert run[step]["training/rollout_probs_diff_max"] < 1e-5
        assert run[step]["training/rollout_probs_diff_valid"] == 1
        # Staleness 0: every trajectory was sampled with the weights of the step before.
        assert run[step]["training/off_policy/trajectory_staleness_worst/max"] == 0


def test_every_trajectory_is_there_once(rows: dict[int, list[dict[str, Any]]]) -> None:
    for found in rows.values():
        assert len({row["key"] for row in found}) == len(found) == PROMPTS * GROUP
        assert len({row["record"]["trajectory_id"] for row in found}) == len(found)


def test_tool_calls_are_counted(run: dict[int, dict[str, Any]], rows: dict[int, list[dict[str, Any]]]) -> None:
    for step, found in rows.items():
        executed = [call for row in found for call in row["record"]["calls"] if call["executed"]]
        by_tool = {name: sum(call["tool"] == name for call in executed) for name in ("calculator", "python")}
        assert by_tool["calculator"] > 0
        assert by_tool["python"] > 0
        for name, calls in by_tool.items():
            assert run[step][f"rollbox/tool/{name}/calls_total"] == calls
            assert run[step][f"rollbox/tool/{name}/latency_ms/p99"] > 0


def sound(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if not row["record"]["infra_failed"]]


def test_what_failed_through_our_fault_has_no_part_in_anything(
    run: dict[int, dict[str, Any]], rows: dict[int, list[dict[str, Any]]]
) -> None:
    for step, found in rows.items():
        failed = [row for row in found if row["record"]["infra_failed"]]
        assert failed
        assert run[step]["rollbox/infra_failed_total"] == len(failed)
        for row in failed:
            assert not any(row["response_mask"])
            assert not any(row["scores"])
            assert "a bug in the tool" in row["record"]["error"]
        # verl's advantages are those of groups without the failed: GRPO's, by the mean and deviation of the rest.
        groups: dict[str, list[float]] = {}
        for row in sound(found):
            groups.setdefault(row["key"].split("_")[0], []).append(sum(row["scores"]))
        advantages = []
        for group in groups.values():
            mean, deviation = (fmean(group), stdev(group)) if len(group) > 1 else (0.0, 1.0)
            advantages += [(score - mean) / (deviation + 1e-6) for score in group]
        assert run[step]["critic/advantages/max"] == pytest.approx(max(advantages), abs=1e-4)
        assert run[step]["critic/advantages/min"] == pytest.approx(min(advantages), abs=1e-4)


def test_the_score_is_the_sum_of_its_parts(
    run: dict[int, dict[str, Any]], rows: dict[int, list[dict[str, Any]]]
) -> None:
    for step, found in rows.items():
        for row in sound(found):
            outcome = row["reward_info"]["acc"] + 0.1 * row["reward_info"]["format"]
            placed = sum(reward for _, reward in row["record"]["token_rewards"])
            assert sum(row["scores"]) == pytest.approx(outcome + placed, abs=1e-6)
        totals = [sum(row["scores"]) for row in sound(found)]
        assert run[step]["critic/score/mean"] == pytest.approx(sum(totals) / len(totals), abs=1e-6)
        assert run[step]["rollbox/reward/all/mean"] == pytest.approx(sum(totals) / len(totals), abs=1e-6)


def test_rewards_lie_on_the_last_token_of_the_turn_that_earned_them(rows: dict[int, list[dict[str, Any]]]) -> None:
    seen = 0
    for row in (row for found in rows.values() for row in sound(found)):
        mask = row["response_mask"]
        turn_ends = [i for i, bit in enumerate(mask) if bit and not (i + 1 < len(mask) and mask[i + 1])]
        expected = [0.0] * len(mask)
        expected[-1] = row["reward_info"]["acc"] + 0.1 * row["reward_info"]["format"]
        earned = [call for call in row["record"]["calls"] if call["executed"] and call["tool"] == "calculator"]
        for call in earned:
            assert call["tool_reward"] in ((STEP, STEP + EXTRA) if call["error_kind"] is None else (0.0,))
            expected[turn_ends[call["turn"]]] += TOOL_WEIGHT * call["tool_reward"]
        expected[turn_ends[-1]] += TOOL_WEIGHT * WHOLE * bool(earned)
        assert row["scores"] == pytest.approx(expected, abs=1e-6)
        seen += bool(earned)
    assert seen > 0


def test_a_checkpoint_is_resumed_and_validation_scores(run: dict[int, dict[str, Any]], folder: Path) -> None:
    assert (folder / "checkpoints" / "latest_checkpointed_iteration.txt").read_text() == "2"
    resumed = train(folder, "second", "trainer.total_training_steps=3", "trainer.val_before_train=True")
    assert sorted(resumed) == [2, 3]
    assert 0 <= resumed[2]["val-core/rollbox/arithmetic/acc/mean@1"] <= 1
    assert resumed[3]["actor/grad_norm"] > 0
    assert resumed[3]["training/rollout_probs_diff_max"] < 1e-5
    assert resumed[3]["training/off_policy/trajectory_staleness_worst/max"] == 0
