"""Every recipe composes against the installed verl, and what is wrong with one is named before anything starts."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import pytest

from rollbox.cli.main import app
from rollbox.schemas.errors import ConfigError
from rollbox.training.launch import PLUGIN, environment
from rollbox.training.recipe import SHIPPED, compose_recipe, find_recipe
from rollbox.training.settings import read_settings

pytestmark = pytest.mark.verl

RECIPES = sorted(path.stem for path in SHIPPED.glob("*.yaml") if not path.stem.startswith("rollbox_"))
CPU_RECIPES = ["cpu_arithmetic", "cpu_learning"]
GPU_RECIPES = [name for name in RECIPES if name not in CPU_RECIPES]
# What fits the hardware: of 7 billion parameters, one GPU does not hold the optimizer.
MODELS = {"gpu1": "Qwen/Qwen2.5-1.5B-Instruct", "gpu8": "Qwen/Qwen2.5-7B-Instruct"}
MULTI_TURN = "actor_rollout_ref.rollout.multi_turn"


@pytest.fixture(autouse=True)
def _registered() -> None:
    import rollbox.training.plugin  # noqa: F401 - verl's dataclasses look registered names up


@pytest.mark.parametrize(
    ("name", "hardware", "server"), list(itertools.product(GPU_RECIPES, ["gpu1", "gpu8"], ["vllm", "sglang"]))
)
def test_a_gpu_recipe_is_what_verl_can_run(name: str, hardware: str, server: str) -> None:
    _, config = compose_recipe(find_recipe(name, [f"hardware={hardware}", f"server={server}"]))
    _check_as_verl_does(config, hardware, server)
    assert Path(config.actor_rollout_ref.rollout.multi_turn.tool_config_path).is_file()


def test_the_recipe_of_the_docs_is_what_verl_can_run(tmp_path: Path) -> None:
    docs = (Path(__file__).parents[2] / "docs" / "training.md").read_text(encoding="utf-8")
    [text] = re.findall(r"```yaml\n(# mine\.yaml\n.*?)```", docs, re.DOTALL)
    (tmp_path / "mine.yaml").write_text(text)
    _, config = compose_recipe(find_recipe(str(tmp_path / "mine.yaml")))
    _check_as_verl_does(config, "gpu1", "vllm")


def _check_as_verl_does(config: Any, hardware: str, server: str) -> None:
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import omega_conf_to_dataclass, validate_config

    read_settings(config)
    rollout = omega_conf_to_dataclass(config.actor_rollout_ref.rollout)
    assert rollout.name == server
    assert rollout.agent.default_agent_loop == "rollbox_agent"
    assert config.trainer.n_gpus_per_node == int(hardware.removeprefix("gpu"))
    assert config.data.train_batch_size % config.actor_rollout_ref.actor.ppo_mini_batch_size == 0
    assert config.trainer.v1.sampler.sampler_kwargs.rollbox == config.rollbox
    omega_conf_to_dataclass(config.algorithm)
    validate_config(config, need_reference_policy(config), need_critic(config))
    assert config.actor_rollout_ref.model.path == MODELS[hardware]
    longest = config.data.max_prompt_length + config.data.max_response_length
    assert config.actor_rollout_ref.actor.ppo_max_token_len_per_gpu >= longest


@pytest.mark.parametrize("name", CPU_RECIPES)
def test_a_cpu_recipe_runs_on_the_cpu(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERL_USE_EXTERNAL_MODULES", "mine")
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    _, config = compose_recipe(find_recipe(name))
    env = environment(config)
    assert (env["VERL_PLATFORM"], env["OMP_NUM_THREADS"]) == ("cpu", "2")
    assert env["VERL_USE_EXTERNAL_MODULES"] == f"mine,{PLUGIN}"


@pytest.mark.parametrize("key", ["multi_turn.tools_config_file", f"+{MULTI_TURN}.tools_config_file"])
def test_tools_config_file_is_verls_tool_config_path(key: str) -> None:
    _, config = compose_recipe(find_recipe("cpu_arithmetic", [f"{key}=tools_config/python.yaml"]))
    assert config.actor_rollout_ref.rollout.multi_turn.tool_config_path == str(
        SHIPPED.parent / "tools_config/python.yaml"
    )
    assert "tools_config_file" not in config.actor_rollout_ref.rollout.multi_turn


def test_tools_config_file_in_a_recipe_of_ones_own(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text(
        "defaults: [ppo_trainer, rollbox_base, rollbox_cpu, _self_]\n"
        "actor_rollout_ref: {rollout: {multi_turn: {tools_config_file: tools_config/python.yaml}}}\n"
    )
    recipe, config = compose_recipe(find_recipe(str(own)))
    assert config.actor_rollout_ref.rollout.multi_turn.tool_config_path.endswith("tools_config/python.yaml")
    assert "tools_config_file" not in config.actor_rollout_ref.rollout.multi_turn
    assert f"--config-dir={tmp_path}" in recipe.hydra_arguments()


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["data.train_batch=4"], "train_batch"),
        (["+data.train_batch=4"], "verl has no key 'data.train_batch'"),
        ([f"+{MULTI_TURN}.max_turns=4"], f"verl has no key '{MULTI_TURN}.max_turns'"),
        (["+trainer.v2.x=1", "+data.y=1"], "and 1 more"),
    ],
)
def test_a_wrong_key_is_named(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        compose_recipe(find_recipe("cpu_arithmetic", overrides))


def test_keys_that_verl_leaves_open_are_taken() -> None:
    given = [
        "+actor_rollout_ref.model.override_config.x=1",
        "+actor_rollout_ref.rollout.agent.agent_loop_manager_class=a.B",
    ]
    compose_recipe(find_recipe("cpu_arithmetic", given))


def test_an_unknown_recipe_lists_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"recipe: no file .*nope.yaml; there are: code_judge, cpu_arithmetic"):
        find_recipe("nope")


def test_the_command_prints_what_it_would_run(monkeypatch: pytest.MonkeyPatch) -> None:
    from typer.testing import CliRunner

    result: Any = CliRunner().invoke(
        app, ["train", "cpu_arithmetic", "trainer.save_freq=7", "--no-preflight", "--dry-run"]
    )
    assert result.exit_code == 0, result.output
    assert "-m verl.trainer.main_ppo" in result.output
    assert "trainer.save_freq=7" in result.output
