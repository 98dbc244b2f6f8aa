"""The preflight finds the rows that would fail in the run, and the sandbox of verl's code rewards that is not there."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from rollbox.schemas.errors import ConfigError
from rollbox.training.preflight import preflight
from rollbox.training.recipe import compose_recipe, find_recipe

from ..sandbox.server_process import serving

pytestmark = pytest.mark.verl

QUESTION = {
    "data_source": "rollbox/arithmetic",
    "prompt": [{"role": "user", "content": "1 + 1"}],
    "reward_model": {"ground_truth": "2"},
}
BATCH = ("data.train_batch_size=1", "actor_rollout_ref.actor.ppo_mini_batch_size=1")
CODE_URL = "+reward.custom_reward_function.reward_kwargs.sandbox_fusion_url"
VERLS_REWARD = (
    *("~rollbox.rewards", "+rollbox.rewards={tool: 0.0}"),
    "reward.custom_reward_function.path=pkg://verl.utils.reward_score",
    "reward.custom_reward_function.name=default_compute_score",
)


def write_rows(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def checked(recipe: str, folder: Path, model: Path, *overrides: str, train: Path | None = None) -> list[str]:
    good = write_rows(folder / "good.jsonl", QUESTION)
    given = [
        *(f"data.train_files={train or good}", f"data.val_files={good}", f"actor_rollout_ref.model.path={model}"),
        *("+actor_rollout_ref.model.override_config.max_position_embeddings=32768", *BATCH, *overrides),
    ]
    return asyncio.run(preflight(compose_recipe(find_recipe(recipe, given))[1]))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ([1], "row 0 of .*bad.jsonl: must hold named columns .got list"),
        ({}, "row 0 of .*bad.jsonl: no column 'prompt'; data.prompt_key names the one"),
        ({"prompt": "hello"}, "'0 of .*bad.jsonl': the prompt must be a list of chat messages .got str 'hello'"),
        ({"prompt": ["hello"]}, "a chat message must have a role and a content .got 'hello'"),
        ({"reward_model": "2"}, "'0 of .*bad.jsonl': reward_model: must hold named fields, .*got str '2'"),
        ({"extra_info": 5}, "extra_info: must hold named fields, .*got int '5'"),
        ({"tools_kwargs": [1]}, "tools_kwargs: must hold named fields, .*got list"),
        ({"extra_info": {"tools_kwargs": {"python": 5}}}, "python: must hold named fields, .*got int '5'"),
        (
            {"extra_info": {"tool_selection": ["nope"]}},
            "row 0 of .*: extra_info.tool_selection: no tool 'nope'",
        ),
        (
            {"extra_info": {"tool_selection": "python"}},
            "tool_selection: must be a list of names of tools",
        ),
        (
            {"agent_name": "rollbox_agnt"},
            "row 0 of .*: no agent loop 'rollbox_agnt' .*rollbox_agent, single",
        ),
    ],
)
def test_a_row_that_would_fail_is_named(row: Any, message: str, tmp_path: Path, random_model_dir: Path) -> None:
    bad = write_rows(tmp_path / "bad.jsonl", {**QUESTION, **row} if row and isinstance(row, dict) else row)
    with pytest.raises(ConfigError, match=message):
        checked("cpu_arithmetic", tmp_path, random_model_dir, f"data.val_files={bad}")


@pytest.mark.parametrize(("key", "value"), [("train_files", "[]"), ("val_files", "null"), ("val_files", "5")])
def test_files_that_are_none_are_named(key: str, value: str, tmp_path: Path, random_model_dir: Path) -> None:
    with pytest.raises(ConfigError, match=rf"data\.{key}: must name a parquet or JSONL file, or a list of some"):
        checked("cpu_arithmetic", tmp_path, random_model_dir, f"data.{key}={value}")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["data.train_batch_size=2"], "a step takes 2 questions and data.train_files has 1; lower it"),
        (["data.train_batch_size=0"], "data.train_batch_size: must be a number of questions, at least 1 .got 0"),
        (["data.train_batch_size=many"], "data.train_batch_size: must be a number of questions, .*got 'many'"),
    ],
)
def test_a_step_that_the_data_do_not_fill(
    overrides: list[str], message: str, tmp_path: Path, random_model_dir: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        checked("cpu_arithmetic", tmp_path, random_model_dir, *overrides)


def test_a_sample_of_the_data_does_not_fill_a_step(tmp_path: Path, random_model_dir: Path) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", QUESTION, QUESTION)
    overrides = ("data.train_batch_size=2", "actor_rollout_ref.actor.ppo_mini_batch_size=2")
    checked("cpu_arithmetic", tmp_path, random_model_dir, *overrides, train=rows)
    with pytest.raises(ConfigError, match=r"takes 2 questions and data\.train_files has 1"):
        checked("cpu_arithmetic", tmp_path, random_model_dir, *overrides, "data.train_max_samples=1", train=rows)


def test_a_loop_that_a_module_of_the_user_registers_is_known(
    tmp_path: Path, random_model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "registers_a_loop.py").write_text(
        "from verl.experimental.agent_loop.agent_loop import register\n@register('of_the_user')\nclass Own: ...\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    row = write_rows(tmp_path / "row.jsonl", {**QUESTION, "agent_name": "of_the_user"})
    monkeypatch.setenv("VERL_USE_EXTERNAL_MODULES", "registers_no_loop_at_all")
    with pytest.raises(ConfigError, match="VERL_USE_EXTERNAL_MODULES: cannot import 'registers_no_loop_at_all'"):
        checked("cpu_arithmetic", tmp_path, random_model_dir, f"data.val_files={row}")
    monkeypatch.setenv("VERL_USE_EXTERNAL_MODULES", "registers_a_loop")
    checked("cpu_arithmetic", tmp_path, random_model_dir, f"data.val_files={row}")


REWARD = """
def target(data_source, solution_str, ground_truth, extra_info):
    return float(solution_str in ground_truth["target"])
def not_a_number(data_source, solution_str, ground_truth, extra_info):
    return {"score": float("nan")}
def ends_the_process(data_source, solution_str, ground_truth, extra_info):
    raise SystemExit(3)
"""


def own_function(folder: Path, name: str) -> tuple[str, ...]:
    (folder / "own.py").write_text(REWARD)
    return (
        f"reward.custom_reward_function.path={folder}/own.py",
        f"reward.custom_reward_function.name={name}",
    )


def asked(source: str, truth: Any) -> dict[str, Any]:
    return {**QUESTION, "data_source": source, "reward_model": {"ground_truth": truth}}


def test_a_function_gets_the_ground_truth_as_the_run_gives_it(tmp_path: Path, random_model_dir: Path) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", asked("a", {"target": ["#### 1"]}), asked("b", {"target": ["2"]}))
    function = own_function(tmp_path, "target")
    lines = checked("search_r1", tmp_path, random_model_dir, *function, f"data.val_files={rows}", train=rows)
    assert lines[-1].endswith("gives an answer of '#### 1' 1 (a), 0 (b)")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (asked("c", "2"), r"cannot score row 1 of .* \(c\): TypeError: string indices"),
        (asked("a", None), r"cannot score row 1 of .* \(a\): TypeError: 'NoneType'"),
        ({**QUESTION, "reward_model": {"style": "rule"}}, r"row 1 of .* has no reward_model\.ground_truth, which"),
        ({"prompt": QUESTION["prompt"]}, r"row 1 of .* has no reward_model\.ground_truth, which"),
    ],
)
def test_a_function_is_tried_on_every_kind_of_row(
    row: dict[str, Any], message: str, tmp_path: Path, random_model_dir: Path
) -> None:
    good = asked("a", {"target": ["2"]})
    train, val = write_rows(tmp_path / "train.jsonl", good), write_rows(tmp_path / "val.jsonl", good, row)
    function = own_function(tmp_path, "target")
    with pytest.raises(ConfigError, match=message):
        checked("search_r1", tmp_path, random_model_dir, *function, f"data.val_files={val}", train=train)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("not_a_number", "cannot score row 0 of .*nan"),
        ("ends_the_process", r"cannot score row 0 of .*SystemExit\(3\)"),
        ("not_there", "not_there of .*own.py cannot be loaded: AttributeError"),
    ],
)
def test_a_function_that_gives_no_score_is_named(
    name: str, message: str, tmp_path: Path, random_model_dir: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        checked("search_r1", tmp_path, random_model_dir, *own_function(tmp_path, name))


def code_rows(folder: Path) -> Path:
    return write_rows(folder / "code.jsonl", asked("codecontests", json.dumps({"inputs": ["1"], "outputs": ["2"]})))


def test_the_sandbox_of_the_code_rewards_is_tried(tmp_path: Path, random_model_dir: Path) -> None:
    rows = code_rows(tmp_path)
    with serving("--slots", "1") as server:
        given = (*VERLS_REWARD, f"{CODE_URL}={server.url}/run_code", f"data.val_files={rows}")
        lines = checked("code_judge", tmp_path, random_model_dir, *given, train=rows)
        assert lines[-2] == f"code sandbox: {server.url}/run_code runs programs"
        given = (*VERLS_REWARD, f"{CODE_URL}={server.url}/v1/run")
        with pytest.raises(ConfigError, match=r"sandbox_fusion_url: the sandbox at .*/v1/run ran no program, but"):
            checked("code_judge", tmp_path, random_model_dir, *given, train=rows)


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/run_code", "nonsense", "file:///etc/passwd"])
def test_a_sandbox_of_the_code_rewards_that_is_not_there(url: str, tmp_path: Path, random_model_dir: Path) -> None:
    rows = code_rows(tmp_path)
    with pytest.raises(ConfigError, match=r"sandbox_fusion_url: the sandbox at .* does not answer .*rollbox serve"):
        checked("code_judge", tmp_path, random_model_dir, *VERLS_REWARD, f"{CODE_URL}={url}", train=rows)


def test_the_sandbox_of_our_code_score_is_tried(tmp_path: Path, random_model_dir: Path) -> None:
    rows = code_rows(tmp_path)
    lines = checked("code_judge", tmp_path, random_model_dir, f"data.val_files={rows}", train=rows)
    assert "code sandbox: embedded judges programs" in lines
    rewards = tmp_path / "rewards.yaml"
    rewards.write_text("sandbox_url: http://127.0.0.1:9\nparts: {correct: {kind: outcome}}\n")
    given = (f"rollbox.rewards.file={rewards}", f"data.val_files={rows}")
    with pytest.raises(
        ConfigError, match=r"reward: the rewards file's sandbox_url http://127.0.0.1:9 judges no program"
    ):
        checked("code_judge", tmp_path, random_model_dir, *given, train=rows)
