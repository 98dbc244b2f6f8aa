"""Our tool classes, YAML files and reward function in the real loader, agent loop and reward manager of an older verl.

Run by `make test-verl-compat`, each release in an environment of its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rollbox.tools.registry import load_tools

from ..verl.in_process import SHIPPED, RewardHandle, ScriptedClient, batch, call, compose_config
from .old_verl import load_tools_as_verl_does, make_agent_loop_worker

pytestmark = pytest.mark.verl

PROMPT_LENGTH = 1024  # verl 0.8.0 cuts the text of a tool to this many tokens, from the left

SCRIPTS: dict[str, list[str | Exception]] = {
    "calculator": [call("calculator", expression="3 + 4"), "#### 7<|im_end|>"],
    "division": [call("calculator", expression="1 / 0"), "#### 0<|im_end|>"],
    "python": [call("python", code="print(sum(range(10)))"), "#### 45<|im_end|>"],
    "search": [call("search", query_list=["capital of Peru"]), "#### 0<|im_end|>"],
    "leak": [call("calculator", expression="3 + 4"), "I do not know.<|im_end|>"],
}
SEEN = {"calculator": "7", "division": "division by zero", "python": "45", "search": "Lima", "leak": "7"}


@pytest.mark.parametrize("file", sorted(SHIPPED.glob("*.yaml")), ids=lambda file: file.stem)
def test_shipped_yaml_loads_in_verl_and_here_alike(file: Path) -> None:
    assert [tool.name for tool in load_tools_as_verl_does(str(file))] == list(load_tools(file))


@pytest.mark.parametrize("function", ["compute_score", "compute_score_blocking"])
async def test_every_tool_answers_and_the_models_own_words_are_scored(function: str, random_model_dir: Path) -> None:
    config = compose_config(
        random_model_dir,
        SHIPPED / "all.yaml",
        f"data.max_prompt_length={PROMPT_LENGTH}",
        "actor_rollout_ref.rollout.multi_turn.max_assistant_turns=4",
        "actor_rollout_ref.rollout.multi_turn.max_tool_response_length=8000",
        "reward.custom_reward_function.path=pkg://rollbox.training.compute_score",
        f"reward.custom_reward_function.name={function}",
    )
    client = ScriptedClient(SCRIPTS)
    handles: list[Any] = []
    worker = make_agent_loop_worker(config, client, handles)
    client.tokenizer = worker.tokenizer
    handles.append(RewardHandle(config))
    output = await worker.generate_sequences(batch(list(SCRIPTS), "tool_agent"))
    for i, kind in enumerate(SCRIPTS):
        mask = output.batch["response_mask"][i].bool()
        attended = output.batch["attention_mask"][i, PROMPT_LENGTH:].bool()
        response = output.batch["responses"][i]
        assert worker.tokenizer.decode(response[mask]) == "".join(map(str, SCRIPTS[kind])), kind
        assert SEEN[kind] in worker.tokenizer.decode(response[attended & ~mask]), kind
    accuracy = dict(zip(SCRIPTS, output.non_tensor_batch["acc"].tolist(), strict=True))
    assert accuracy == {"calculator": 1.0, "division": 0.0, "python": 0.0, "search": 0.0, "leak": 0.0}
    for tool in getattr(worker, "tools", ()):
        await tool.aclose()
