"""What `rollbox data` writes passes the preflight of its recipe, and the recipe's reward knows a right answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from datasets import load_dataset
from typer.testing import CliRunner
from verl.utils.reward_score import default_compute_score

from rollbox.cli.main import app
from rollbox.rewards.registry import outcome_for
from rollbox.rewards.sandbox_access import ScoringSandbox
from rollbox.training.preflight import preflight
from rollbox.training.recipe import compose_recipe, find_recipe

from ..data_set_rows import AIME, APPS, APPS_FUNCTION, CODE_CONTESTS, DAPO, EURUS, GSM8K, HELD_OUT, SEARCH_R1

pytestmark = pytest.mark.verl

ROWS: dict[str, list[Mapping[str, Any]]] = {
    "gsm8k": [GSM8K],
    "dapo-math": [DAPO, AIME],
    "search-qa": [SEARCH_R1],
    "code": [EURUS, CODE_CONTESTS, APPS, APPS_FUNCTION],
}
RECIPES = {
    "gsm8k": "gsm8k_python",
    "dapo-math": "dapo_math_python",
    "search-qa": "search_r1",
    "code": "code_judge",
}
PROGRAM = "```python\n{}\n```"


def prepared(folder: Path, name: str) -> Path:
    for split, rows in (("train", ROWS[name]), ("test", [HELD_OUT[name]])):
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    files = ("--train", f"{folder}/train.jsonl", "--test", f"{folder}/test.jsonl")
    result = CliRunner().invoke(app, ["data", name, *files, "--out", f"{folder}/out"])
    assert result.exit_code == 0, result.output
    return folder / "out"


def as_verl_reads(folder: Path) -> list[dict[str, Any]]:
    """verl's `RLHFDataset` reads by this library."""
    return list(load_dataset("parquet", data_files=str(folder / "train.parquet"), cache_dir=str(folder))["train"])


@pytest.mark.parametrize("name", ROWS)
def test_a_recipe_starts_with_what_was_prepared(name: str, tmp_path: Path, random_model_dir: Path) -> None:
    folder, count = prepared(tmp_path, name), len(ROWS[name])
    given = [
        *(f"data.train_files={folder}/train.parquet", f"data.val_files={folder}/test.parquet"),
        f"actor_rollout_ref.model.path={random_model_dir}",
        "+actor_rollout_ref.model.override_config.max_position_embeddings=32768",
        *(f"data.train_batch_size={count}", f"actor_rollout_ref.actor.ppo_mini_batch_size={count}"),
    ]
    lines = asyncio.run(preflight(compose_recipe(find_recipe(RECIPES[name], given))[1]))
    assert any(line.startswith("reward: ") for line in lines)


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("gsm8k", ["#### 1,007"], "#### 8"),
        ("dapo-math", ["So:\nAnswer: 42", "So:\nAnswer: 024"], "Answer: 43"),
        ("search-qa", ["<answer>lima, peru</answer>"], "<answer>Quito</answer>"),
    ],
)
def test_verls_scores_know_the_answer(name: str, right: list[str], wrong: str, tmp_path: Path) -> None:
    rows = as_verl_reads(prepared(tmp_path, name))
    for row, answer in zip(rows, right, strict=True):
        given = (row["data_source"], answer, row["reward_model"]["ground_truth"])
        full, none = default_compute_score(*given), default_compute_score(given[0], wrong, given[2])
        assert (full["score"] if isinstance(full, dict) else full) == 1
        assert (none["score"] if isinstance(none, dict) else none) < 1


async def test_programs_are_judged(tmp_path: Path) -> None:
    rows = as_verl_reads(prepared(tmp_path, "code"))
    programs = [
        "print(3 * int(input()))",
        "n = int(input())\nprint('YES' if n % 2 == 0 and n > 2 else 'NO')",
        "print(sum(map(int, input().split())))",
        "def add(a, b):\n    return a + b",
    ]
    async with ScoringSandbox() as sandbox:
        sandbox.use()
        for row, program in zip(rows, programs, strict=True):
            judge, truth = outcome_for(row["data_source"]), row["reward_model"]["ground_truth"]
            assert (await judge(PROGRAM.format(program), truth)).value == 1
            assert (await judge(PROGRAM.format("print(0)"), truth)).value == 0
