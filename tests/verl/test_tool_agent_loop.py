"""Our tool classes and YAML files under verl's real loader, agent-loop worker and ToolAgentLoop, without Ray.

The model's text is scripted; tokenizer, parser, loop, tools and sandbox are the real ones.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import verl
from hydra import compose, initialize_config_dir
from verl.experimental.agent_loop.agent_loop import AgentLoopWorker
from verl.protocol import DataProto
from verl.tools.tool_registry import initialize_tools_from_config
from verl.workers.rollout.replica import TokenOutput

from rollbox.tools.registry import load_tools
from rollbox.training.tool_parsers import registered

pytestmark = pytest.mark.verl

ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "tools_config"
PROMPT_LENGTH, RESPONSE_LENGTH = 768, 1024


def call(name: str, **arguments: Any) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call><|im_end|>"


SCRIPTS: dict[str, list[str]] = {
    "calculator": [call("calculator", expression="17 * 23"), "#### 391<|im_end|>"],
    "python": [call("python", code="print(sum(range(10)))"), "#### 45<|im_end|>"],
    "python_error": [call("python", code="print(undefined_name)"), "#### 0<|im_end|>"],
    "bash": [call("bash", command="echo $((6 * 7)) | rev"), "#### 24<|im_end|>"],
    "search": [call("search", query_list=["capital of Peru"]), "#### 0<|im_end|>"],
    "division": [call("calculator", expression="1 / 0"), "#### 0<|im_end|>"],
    "parallel": [
        call("calculator", expression="1 + 1").removesuffix("<|im_end|>") + "\n" + call("python", code="print(6 * 7)"),
        "#### 44<|im_end|>",
    ],
    "arguments_as_text": [
        call("calculator", expression="2 + 2").replace('{"expression": "2 + 2"}', '"2 + 2"'),
        "4<|im_end|>",
    ],
    "broken": ["<tool_call>\n{oops\n</tool_call><|im_end|>", "I cannot.<|im_end|>"],
}
SEEN_WITH_OURS = {"arguments_as_text": ["has no 'arguments' ob"]}
OURS_ALONE = {"broken"}
"""What verl's own parser drops, so that the trajectory ends there."""
SEEN = {
    "calculator": ["391"],
    "python": ["45"],
    "python_error": ["NameError: name 'undefined_name' is not defined"],
    "bash": ["24"],
    "search": ["Lima"],
    "division": ["division by zero"],
    "parallel": ["2", "42"],
    "arguments_as_text": ["4"],
    "broken": ["is not valid JSON"],
}


class ScriptedClient:
    """Stands for verl's LLM client: says the script of the kind that the question names."""

    def __init__(self) -> None:
        self.tokenizer: Any = None
        self.turns: dict[str, int] = {}

    async def generate(self, request_id: str, *, prompt_ids: list[int], **_: Any) -> TokenOutput:
        kind = self.tokenizer.decode(prompt_ids).split("KIND=")[1].split("<|im_end|>")[0]
        turn = self.turns[request_id] = self.turns.get(request_id, -1) + 1
        ids = self.tokenizer.encode(SCRIPTS[kind][turn], add_special_tokens=False)
        steps = {"global_steps": 1, "min_global_steps": 1, "max_global_steps": 1}
        return TokenOutput(token_ids=ids, log_probs=[-0.5] * len(ids), stop_reason="completed", extra_fields=steps)


class LocalRewards:
    """Stands for the Ray handle of a reward worker; a fixed score."""

    class compute_score:  # noqa: N801 - the name of verl's actor method
        @staticmethod
        async def remote(*_: Any, **__: Any) -> dict[str, Any]:
            return {"reward_score": 1.0, "reward_extra_info": {}}


@pytest.fixture(scope="module", params=["hermes", "rollbox_hermes"])
def worker(random_model_dir: Path, request: pytest.FixtureRequest) -> tuple[Any, ScriptedClient]:
    config_dir = str(Path(verl.__file__).parent / "trainer" / "config")
    with initialize_config_dir(config_dir=config_dir, version_base=None):
        config = compose(
            "ppo_trainer",
            overrides=[
                f"actor_rollout_ref.model.path={random_model_dir}",
                "actor_rollout_ref.rollout.name=vllm",
                "+actor_rollout_ref.model.override_config.attn_implementation=sdpa",
                f"data.max_prompt_length={PROMPT_LENGTH}",
                f"data.max_response_length={RESPONSE_LENGTH}",
                f"actor_rollout_ref.rollout.multi_turn.tool_config_path={SHIPPED / 'all.yaml'}",
                f"actor_rollout_ref.rollout.multi_turn.format={request.param}",
                "actor_rollout_ref.rollout.multi_turn.max_parallel_calls=2",
                "actor_rollout_ref.rollout.multi_turn.max_assistant_turns=4",
                "actor_rollout_ref.rollout.multi_turn.max_tool_response_length=2000",
            ],
        )
    client = ScriptedClient()
    agent_worker = AgentLoopWorker(config, client, None, [LocalRewards()])
    client.tokenizer = agent_worker.tokenizer
    return agent_worker, client


def batch(kinds: list[str]) -> DataProto:
    n = len(kinds)

    def column(values: list[Any]) -> np.ndarray[Any, Any]:
        array = np.empty(n, dtype=object)
        array[:] = values
        return array

    data = DataProto.from_dict(
        non_tensors={
            "raw_prompt": column([[{"role": "user", "content": f"Question. KIND={kind}"}] for kind in kinds]),
            "agent_name": column(["tool_agent"] * n),
            "data_source": column(["openai/gsm8k"] * n),
            "reward_model": column([{"ground_truth": "7"}] * n),
            "extra_info": column([{"index": i} for i in range(n)]),
            "index": np.arange(n),
            "tools_kwargs": column([{}] * n),
        }
    )
    data.meta_info = {"global_steps": 1, "validate": False}
    return data


@pytest.mark.parametrize("file", sorted(SHIPPED.glob("*.yaml")), ids=lambda file: file.stem)
def test_shipped_yaml_loads_in_verl_and_here_alike(file: Path) -> None:
    theirs = {tool.name: tool for tool in initialize_tools_from_config(str(file))}
    ours = load_tools(file)
    assert list(theirs) == list(ours)
    for name, tool in theirs.items():
        shown = tool.tool_schema.model_dump(exclude_unset=True, exclude_none=True)
        assert shown["function"]["name"] == name
        assert shown["function"]["parameters"]["required"] == ours[name].tool_schema.function.parameters.required


async def test_every_tool_answers_in_verls_own_loop(worker: tuple[Any, ScriptedClient]) -> None:
    agent_worker, _ = worker
    ours = agent_worker.rollout_config.multi_turn.format in registered
    kinds = [kind for kind in SCRIPTS if ours or kind not in OURS_ALONE]
    output = await agent_worker.generate_sequences(batch(kinds))
    await _close_tools(agent_worker)
    tokenizer = agent_worker.tokenizer
    for i, kind in enumerate(kinds):
        mask = output.batch["response_mask"][i].bool()
        attended = output.batch["attention_mask"][i, PROMPT_LENGTH:].bool()
        response = output.batch["responses"][i]
        generated = tokenizer.decode(response[mask])
        context = tokenizer.decode(response[attended & ~mask])
        # mask 1 is exactly what was scripted, mask 0 holds the tools' answers.
        assert generated == "".join(SCRIPTS[kind]), kind
        for expected in (ours and SEEN_WITH_OURS.get(kind)) or SEEN[kind]:
            assert expected in context, kind


async def _close_tools(agent_worker: Any) -> None:
    for tool in agent_worker.tools:
        await tool.aclose()
