"""Our tool classes and YAML files under verl's real loader, agent-loop worker and ToolAgentLoop, without Ray.

The model's text is scripted; tokenizer, parser, loop, tools and sandbox are the real ones.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from verl.tools.tool_registry import initialize_tools_from_config

from rollbox.tools.registry import load_tools
from rollbox.training.tool_parsers import registered

from .in_process import PROMPT_LENGTH, SHIPPED, ScriptedClient, batch, call, close_tools, compose_config, make_worker

pytestmark = pytest.mark.verl

SCRIPTS: dict[str, list[str | Exception]] = {
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


@pytest.fixture(scope="module", params=["hermes", "rollbox_hermes"])
def worker(random_model_dir: Path, request: pytest.FixtureRequest) -> tuple[Any, ScriptedClient]:
    prefix = "actor_rollout_ref.rollout.multi_turn"
    overrides = (f"{prefix}.max_assistant_turns=4", f"{prefix}.format={request.param}")
    return make_worker(compose_config(random_model_dir, SHIPPED / "all.yaml", *overrides), SCRIPTS)


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
    output = await agent_worker.generate_sequences(batch(kinds, "tool_agent"))
    await close_tools(agent_worker)
    tokenizer = agent_worker.tokenizer
    for i, kind in enumerate(kinds):
        mask = output.batch["response_mask"][i].bool()
        attended = output.batch["attention_mask"][i, PROMPT_LENGTH:].bool()
        response = output.batch["responses"][i]
        generated = tokenizer.decode(response[mask])
        context = tokenizer.decode(response[attended & ~mask])
        # mask 1 is exactly what was scripted, mask 0 holds the tools' answers.
        assert generated == "".join(map(str, SCRIPTS[kind])), kind
        for expected in (ours and SEEN_WITH_OURS.get(kind)) or SEEN[kind]:
            assert expected in context, kind
