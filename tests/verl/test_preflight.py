"""The preflight passes what works, and names the remedy of what does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from rollbox.demo.questions import generate
from rollbox.rewards import verify
from rollbox.schemas.errors import ConfigError
from rollbox.schemas.tool import ToolSchema
from rollbox.schemas.trajectory import Sample
from rollbox.training.example_call import example_arguments
from rollbox.training.preflight import preflight
from rollbox.training.recipe import compose_recipe, find_recipe
from rollbox.training.verl_data import read_rows, write_parquet

from .in_process import SHIPPED

pytestmark = pytest.mark.verl


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = tmp_path_factory.mktemp("preflight")
    write_parquet(generate("train", 16, seed=5), made / "train.parquet", "train")
    tools = yaml.safe_load((SHIPPED / "python.yaml").read_text())
    tools["tools"][0]["config"]["sandbox_url"] = "http://127.0.0.1:9"
    (made / "unreachable.yaml").write_text(yaml.safe_dump(tools))
    unscored = Sample(sample_id="1", data_source="nope", messages=[{"role": "user", "content": "?"}], ground_truth="1")
    write_parquet([unscored], made / "unscored.parquet", "train")
    (made / "empty.jsonl").write_text("")
    (made / "group.yaml").write_text("parts: {outcome: , cheap: {kind: call_cost, optimal_calls: group}}")
    (made / "own.py").write_text(
        "def good(data_source, solution_str, ground_truth, extra_info):\n    return {'score': 0.5}\n"
        "async def bad(**kwargs):\n    return kwargs['nothing']\n"
        "async def asleep(**kwargs):\n    import asyncio; await asyncio.Event().wait()\n"
        "def stuck(**kwargs):\n    import threading; threading.Event().wait(60)\n"
        "def odd(**kwargs):\n    return float('nan')\n"
    )
    return made


def config_of(folder: Path, model: Path, *overrides: str) -> Any:
    given = [
        f"data.train_files={folder}/train.parquet",
        f"data.val_files={folder}/train.parquet",
        f"actor_rollout_ref.model.path={model}",
        *overrides,
    ]
    return compose_recipe(find_recipe("cpu_arithmetic", given))[1]


async def test_a_reward_function_of_ones_own_is_tried(folder: Path, random_model_dir: Path) -> None:
    own = f"reward.custom_reward_function.path={folder}/own.py"
    lines = await preflight(config_of(folder, random_model_dir, own, "reward.custom_reward_function.name=good"))
    assert lines[3].endswith("gives an answer of '#### 1' 0.5 (rollbox/arithmetic)")
    with pytest.raises(ConfigError, match=r"bad of .*own.py cannot score row 0 of .*KeyError: 'nothing'; mend it"):
        await preflight(config_of(folder, random_model_dir, own, "reward.custom_reward_function.name=bad"))
    with pytest.raises(ConfigError, match=r"odd of .*own.py cannot score row 0 of .*it returned nan as its value"):
        await preflight(config_of(folder, random_model_dir, own, "reward.custom_reward_function.name=odd"))


@pytest.mark.parametrize("name", ["asleep", "stuck"])
async def test_a_reward_function_that_hangs_does_not_hang_the_preflight(
    folder: Path, random_model_dir: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("rollbox.training.check_rewards._TRIED_S", 0.2)
    own = [f"reward.custom_reward_function.path={folder}/own.py", f"reward.custom_reward_function.name={name}"]
    with pytest.raises(
        ConfigError, match=rf"{name} of .*own.py cannot score row 0 of .*: not ended within 0.2 s; mend"
    ):
        await preflight(config_of(folder, random_model_dir, *own))


OWN = """
from rollbox.rewards.registry import Fixture, score

@score({name!r}, fixtures=[{fixtures}])
def own(solution_str, ground_truth, extra_info):
    return float(solution_str == ground_truth)
"""
GOOD = "Fixture('4', '4', 1.0), Fixture('5', '4', 0.0)"


@pytest.mark.parametrize(
    ("fixtures", "message"),
    [
        (GOOD, ""),
        (
            "Fixture('4', '4', 1.0), Fixture('5', '4', 0.5)",
            "fails its check 'fixture 1': expected 0.5, got 0.0, for '5'",
        ),
        ("", "fails its check 'fixtures': it has none: give @score"),
        ("Fixture('4', '4', 1.0)", "fails its check 'a right and a wrong answer': all fixtures earn the same"),
    ],
)
async def test_functions_of_the_users_modules_are_verified(
    fixtures: str, message: str, folder: Path, random_model_dir: Path, tmp_path: Path
) -> None:
    name = f"test_preflight/{tmp_path.name}"
    (tmp_path / "own.py").write_text(OWN.format(name=name, fixtures=fixtures))
    (tmp_path / "rewards.yaml").write_text("modules: [own.py]\nparts: {outcome: }\n")
    given = ["~rollbox.rewards", f"+rollbox.rewards={{file: {tmp_path}/rewards.yaml}}"]
    config = config_of(folder, random_model_dir, *given)
    if not message:
        checks = 2 + 1 + len(verify._HOSTILE)  # its fixtures, that they differ, and what any function is given
        assert (await preflight(config))[-1] == f"reward functions verified: {name} ({checks} checks)"
        return
    with pytest.raises(ConfigError) as caught:
        await preflight(config)
    assert f"reward: score {name!r} ({tmp_path}/own.py:" in str(caught.value)
    assert message in str(caught.value)
    assert f"rollbox reward verify --module {tmp_path}/own.py" in str(caught.value)


async def test_what_works_is_told(folder: Path, random_model_dir: Path) -> None:
    lines = await preflight(config_of(folder, random_model_dir))
    assert [line.split(":")[0] for line in lines] == ["tools answer", "prompts", "rehearsal", "reward"]
    assert "calculator" in lines[0]
    assert "python" in lines[0]
    assert "32 rows can be scored (rollbox/arithmetic)" in lines[3]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["multi_turn.tools_config_file={folder}/unreachable.yaml", "rollbox.call_timeout_s=1"],
            "tool 'python' does not answer: .*Is its server running",
        ),
        (["data.val_files={folder}/unscored.parquet"], "data: sample .* data_source: no score for 'nope'"),
        (["data.train_files={folder}/none.parquet"], "data.train_files: there is no file .*none.parquet; make it with"),
        (["data.train_files={folder}/empty.jsonl"], "data.train_files: .*empty.jsonl holds no rows"),
        (["data.max_prompt_length=20"], "the prompt of row 0 of .* data.max_prompt_length is 20; raise it"),
        (["data.max_response_length=30"], "rehearsal: a trajectory of one call ended with .*max_response_length"),
        (["actor_rollout_ref.rollout.multi_turn.format=llama3_json"], "format=llama3_json: it does not read a call"),
        (["actor_rollout_ref.model.path={folder}"], "cannot load the tokenizer of"),
        (["reward.reward_model.enable=True", "rollbox.rewards.tool=1"], "enable_resource_pool=True or rollbox.rewards"),
        (["reward.reward_model.enable=True"], "verl then scores by the model alone, .*set reward.reward_manager.name"),
        (["reward.reward_manager.name=rollbox_hybrid"], "rollbox_hybrid needs a reward model on verl's servers"),
        (["+rollbox.reward_model={weight: 1}"], "only reward.reward_manager.name=rollbox_hybrid reads it"),
        (["+rollbox.resample={keep: 8}"], "resample.keep: 8 of actor_rollout_ref.rollout.n=8 leaves nothing out"),
        (["+rollbox.resample={keep: 4}"], "ppo_mini_batch_size: 16 x 8 .* keeps 64 of a step; set it to 8, or to what"),
        (["+rollbox.resample={keep: 4}", "trainer.use_v1=False"], "rollbox.resample: only our .* trainer.use_v1=True"),
        (
            ["~rollbox.rewards", "+rollbox.rewards={file: {folder}/group.yaml}", "trainer.use_v1=False"],
            "part 'cheap' of the rewards file: only our sampler of verl's V1 trainer reads it",
        ),
        (["+rollbox.resample={kept: 4}"], "rollbox: resample.keep: .*required"),
        (["+rollbox.max_turn=1"], "rollbox: max_turn"),
        (["rollbox=5"], r"rollbox: \(whole input\): .*got 5"),
        (
            ["actor_rollout_ref.rollout.multi_turn.max_assistant_turns=0"],
            "multi_turn.max_assistant_turns: max_turns: .*greater than or equal to 1",
        ),
        (
            ["data.max_prompt_length=20", "data.filter_overlong_prompts=True"],
            "data.train_files: each of the 16 prompts looked at is longer than data.max_prompt_length=20",
        ),
        (["data.max_prompt_length=abc"], "data.max_prompt_length: must be a number of tokens, at least 1 .*abc"),
        (
            ["data.max_response_length=16300"],
            "ppo_max_token_len_per_gpu: 16384 tokens at most .* is 16460 tokens",
        ),
        (["actor_rollout_ref.rollout.max_model_len=300"], "rollout.max_model_len: 300, and .* is 352 tokens; raise it"),
        (
            ["+actor_rollout_ref.model.override_config.max_position_embeddings=351"],
            "model was made for 351 tokens .* is 352 tokens; lower them",
        ),
        (["+algorithm.rollbox.turn_wieght=1"], r"algorithm\.rollbox: turn_wieght"),
        (["~rollbox.rewards", "+rollbox.rewards.file={folder}/gone.yaml"], "gone.yaml: cannot be read"),
        (["trainer.v1.trainer_mode=colocate_async"], "custom_sampler.name=RollboxReplayBufferAsync"),
    ],
)
async def test_what_does_not_work_is_named(
    overrides: list[str], message: str, folder: Path, random_model_dir: Path
) -> None:
    given = [override.replace("{folder}", str(folder)) for override in overrides]
    with pytest.raises(ConfigError, match=message):
        await preflight(config_of(folder, random_model_dir, *given))


def test_rows_come_back_as_they_were_written(tmp_path: Path) -> None:
    samples = [
        Sample(
            sample_id=str(i),
            data_source="d",
            messages=[{"role": "user", "content": f"q{i}"}],
            ground_truth=str(i),
            tools_kwargs={"count": {"create_kwargs": {"start": i}}} if i else {},
        )
        for i in range(3)
    ]
    write_parquet(samples, tmp_path / "new" / "a.parquet", "train")
    rows = read_rows(tmp_path / "new" / "a.parquet", "here", limit=2)
    assert [row["prompt"] for row in rows] == [sample.messages for sample in samples[:2]]
    assert rows[1]["extra_info"]["tools_kwargs"] == {"count": {"create_kwargs": {"start": 1}}}
    assert rows[0]["reward_model"]["ground_truth"] == "0"


def test_arguments_are_made_from_a_schema() -> None:
    schema = ToolSchema.model_validate(
        {
            "function": {
                "name": "f",
                "parameters": {
                    "properties": {
                        "text": {"type": "string"},
                        "many": {"type": "array", "items": {"type": "integer", "minimum": 3}},
                        "kind": {"enum": ["a", "b"]},
                        "deep": {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]},
                        "left_out": {"type": "string"},
                    },
                    "required": ["text", "many", "kind", "deep"],
                },
            }
        }
    )
    assert example_arguments(schema) == {"text": "1", "many": [3], "kind": "a", "deep": {"x": 1}}
