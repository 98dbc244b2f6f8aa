"""`rollbox_hybrid`: rules and a reward model, through verl's reward worker and its router; the engines are scripted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from verl.experimental.reward_loop.router.naive_router import NaiveRouter

import rollbox.training.plugin  # noqa: F401 - registers the loop and the reward managers
from rollbox.schemas.errors import ConfigError, InfraError
from rollbox.training.recipe import compose_recipe, find_recipe
from rollbox.training.reward_model_settings import OUR_FUNCTION, check_hybrid

from ..rewards.scoring_server import Answer, ScriptedServer, scripted_server
from .in_process import SHIPPED, batch, call, close_tools, compose_config, make_worker

pytestmark = pytest.mark.verl

SCRIPTS: dict[str, list[str | Exception]] = {
    "right": [call("calculator", expression="3 + 4"), "The sum.\n#### 7<|im_end|>"],
    "wrong": [call("calculator", expression="3 + 4"), "#### 8<|im_end|>"],
    "leak": [call("calculator", expression="3 + 4"), "I do not know.<|im_end|>"],
}
KINDS = list(SCRIPTS)
RULES = [1.1, 0.1, 0.0]
LOGITS = {"The sum.\n#### 7": 2.0, "#### 8": -1.0, "I do not know.": 0.5}


class Engine:
    """Answers as vLLM or SGLang does, in the shapes of their documentation, and keeps what it was shown."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self.shown: list[str] = []

    def __call__(self, path: str, body: dict[str, Any]) -> Any:
        if path == "/v1/chat/completions":
            return {"choices": [{"message": {"role": "assistant", "content": "Short.\nScore: 4"}}]}
        assert path == "/classify"
        ids = body["input"] if "input" in body else body["input_ids"][0]
        text = self._tokenizer.decode(ids)
        self.shown.append(text)
        [logit] = [logit for answer, logit in LOGITS.items() if f"{answer}<|im_end|>" in text]
        if "input_ids" in body:
            return [{"embedding": [logit], "meta_info": {"prompt_tokens": len(ids)}}]
        assert body["use_activation"] is False
        return {"data": [{"index": 0, "label": "LABEL_0", "probs": [logit], "num_classes": 1}]}


@asynccontextmanager
async def routed(answer: Answer) -> AsyncIterator[tuple[ScriptedServer, str]]:
    """A scripted engine, and the address of verl's own router before it."""
    async with scripted_server(answer) as engine:
        app = NaiveRouter([engine.url], retry_delay=0.0).app
        router = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error"))
        serving = asyncio.create_task(router.serve())
        while not router.started:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.01)
        try:
            yield engine, f"127.0.0.1:{router.servers[0].sockets[0].getsockname()[1]}"
        finally:
            router.should_exit = True
            await serving


def overrides(model: Path, engine: str = "vllm") -> list[str]:
    return [
        "trainer.use_v1=False",
        "reward.reward_manager.name=rollbox_hybrid",
        "reward.reward_model.enable=True",
        "reward.reward_model.enable_resource_pool=True",
        f"reward.reward_model.model_path={model}",
        f"reward.reward_model.rollout.name={engine}",
        f"reward.custom_reward_function.path={OUR_FUNCTION}",
    ]


async def scored(model: Path, address: str, given: list[str], **columns: list[Any]) -> Any:
    config = compose_config(model, SHIPPED / "calculator.yaml", *given)
    worker, _ = make_worker(config, SCRIPTS, address)
    try:
        return await worker.generate_sequences(batch(KINDS, "rollbox_agent", **columns))
    finally:
        await close_tools(worker)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
async def test_rules_and_model_are_added(engine: str, random_model_dir: Path, tokenizer: Any) -> None:
    judge = Engine(tokenizer)
    section = "+rollbox.reward_model={weight: 0.5, sigmoid: false}"
    async with routed(judge) as (_, address):
        output = await scored(random_model_dir, address, [*overrides(random_model_dir, engine), section])
    added = [0.5 * logit for logit in LOGITS.values()]
    expected = [rule + model for rule, model in zip(RULES, added, strict=True)]
    assert output.batch["rm_scores"].sum(-1).tolist() == pytest.approx(expected)
    assert output.non_tensor_batch["score"].tolist() == pytest.approx(expected)
    assert output.non_tensor_batch["acc"].tolist() == [1.0, 0.0, 0.0]  # the model has no say in what is right
    assert output.non_tensor_batch["reward_model"].tolist() == pytest.approx(added)
    assert output.non_tensor_batch["reward_model_raw"].tolist() == pytest.approx(list(LOGITS.values()))
    assert all("tool_response" not in text and "KIND=" in text for text in judge.shown)


FILE = """
modules: [own.py]
parts:
  outcome: {weight: 2.0}
  tools: {placement: turn}
"""
OWN = """
from rollbox.rewards.registry import score

@score("test_hybrid/length")
def length(solution_str, ground_truth, extra_info):
    return len(solution_str) / 10
"""


async def test_functions_differ_by_sample_and_the_model_waits_for_a_gate(
    random_model_dir: Path, tokenizer: Any, tmp_path: Path
) -> None:
    (tmp_path / "rewards.yaml").write_text(FILE)
    (tmp_path / "own.py").write_text(OWN)
    judge = Engine(tokenizer)
    given = [
        *overrides(random_model_dir),
        f"+rollbox.rewards.file={tmp_path / 'rewards.yaml'}",
        "+rollbox.reward_model={sigmoid: false, clip: [0, 1], only_if: {part: outcome, at_least: 0.5}}",
    ]
    sources = ["openai/gsm8k", "openai/gsm8k", "test_hybrid/length"]
    async with routed(judge) as (_, address):
        output = await scored(random_model_dir, address, given, data_source=sources)
    # Right, and liked more than the clip allows; wrong, so not shown to the model; 14 characters, and liked by half.
    assert output.batch["rm_scores"].sum(-1).tolist() == pytest.approx([2.0 + 1.0, 0.0, 2.8 + 0.5])
    assert output.non_tensor_batch["reward_model"].tolist() == [1.0, None, 0.5]
    assert len(judge.shown) == 2


async def test_a_function_of_ones_own_gives_the_rules(random_model_dir: Path, tokenizer: Any, tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text(
        "def compute_score(data_source, solution_str, ground_truth, extra_info, reward_router_address, **_):\n"
        "    return {'score': 10.0, 'calls': len(extra_info['rollbox']['calls']), 'short': len(solution_str) < 7}\n"
    )
    given = [
        *overrides(random_model_dir)[:-1],
        f"reward.custom_reward_function.path={own}",
        "+rollbox.reward_model={kind: rubric, rubric: Is it short?, weight: 2, only_if: {part: short, at_least: 1}}",
    ]
    async with routed(Engine(tokenizer)) as (_, address):
        output = await scored(random_model_dir, address, given)
    assert output.batch["rm_scores"].sum(-1).tolist() == pytest.approx([10.0, 10.8, 10.0])
    assert output.non_tensor_batch["calls"].tolist() == [1, 1, 1]


async def test_a_batch_is_asked_for_at_once(random_model_dir: Path, tokenizer: Any) -> None:
    async with routed(Engine(tokenizer)) as (engine, address):
        engine.gate = asyncio.Event()
        running = asyncio.create_task(scored(random_model_dir, address, overrides(random_model_dir)))
        while engine.in_flight < len(KINDS):
            assert not running.done()
            await asyncio.sleep(0.01)
        engine.gate.set()
        await running


async def test_a_failure_of_the_model_is_no_score(random_model_dir: Path) -> None:
    section = "+rollbox.reward_model={service: {retries: 0}}"
    async with routed(lambda path, body: {"data": []}) as (_, address):
        with pytest.raises(InfraError, match="something else than one number per answer"):
            await scored(random_model_dir, address, [*overrides(random_model_dir), section])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            ["reward.reward_model.enable=False"],
            "needs a reward model on verl's servers: set reward.reward_model.enable",
        ),
        (["reward.reward_model.model_path=null"], r"enable=True and \.model_path, or take reward_manager.name=rollbox"),
        (["reward.reward_model.enable_resource_pool=False"], "enable_resource_pool: must be True"),
        (["reward.custom_reward_function.path=null"], f"custom_reward_function.path: set it to {OUR_FUNCTION}"),
        (["+reward.custom_reward_function.reward_kwargs.tool=1"], "weights go into rollbox.rewards"),
        (["reward.reward_model.rollout.name=trtllm"], "rollout.name: must be one of vllm, sglang \\(got 'trtllm'"),
        (["+rollbox.reward_model={weigth: 1}"], "rollbox.reward_model: weigth: .*did you mean 'weight'"),
        (["+rollbox.reward_model={kind: api}"], "rollbox.reward_model.kind: must be one of reward_model, rubric"),
        (["+rollbox.reward_model={model: x}"], "rollbox.reward_model.model: leave it out; reward.reward_model says it"),
        (["+rollbox.reward_model={only_if: {part: correct}}"], "only_if: .*give at_least or at_most"),
    ],
)
def test_what_does_not_go_together_is_named(changed: list[str], message: str, random_model_dir: Path) -> None:
    given = [*overrides(random_model_dir), *changed]
    config = compose_config(random_model_dir, SHIPPED / "calculator.yaml", *given)
    with pytest.raises(ConfigError, match=message):
        check_hybrid(config)


async def test_a_gate_before_no_part_is_named(random_model_dir: Path) -> None:
    section = "+rollbox.reward_model={only_if: {part: corect, at_least: 1}}"
    with pytest.raises(ConfigError, match="no part 'corect'; there are: correct, format, tool"):
        await scored(random_model_dir, "127.0.0.1:9", [*overrides(random_model_dir), section])


async def test_the_manager_of_rules_says_when_it_would_not_be_asked(random_model_dir: Path) -> None:
    given = [*overrides(random_model_dir)[:-1], "reward.reward_manager.name=rollbox"]
    with pytest.raises(ConfigError, match=r"scores by the model alone, .*name=rollbox_hybrid to have both"):
        await scored(random_model_dir, "127.0.0.1:9", given)


def test_the_launcher_names_the_function(random_model_dir: Path) -> None:
    given = overrides(random_model_dir)[1:-1]
    recipe, config = compose_recipe(find_recipe("cpu_arithmetic", given))
    assert config.reward.custom_reward_function.path == OUR_FUNCTION
    assert f"reward.custom_reward_function.path={OUR_FUNCTION}" in recipe.overrides
