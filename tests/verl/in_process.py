"""verl's agent-loop worker in this process, without Ray: only the model's text and the reward handle are scripted."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import verl
from hydra import compose, initialize_config_dir
from verl.experimental.agent_loop.agent_loop import AgentLoopWorker
from verl.experimental.reward_loop.reward_loop import RewardLoopWorker
from verl.protocol import DataProto
from verl.workers.rollout.replica import TokenOutput

PROMPT_LENGTH, RESPONSE_LENGTH = 768, 1024
SHIPPED = Path(__file__).parents[2] / "tools_config"


def call(name: str, **arguments: Any) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call><|im_end|>"


class ScriptedClient:
    """Stands for verl's LLM client: says the script of the kind that the question names.

    An exception in a script is raised; a text ends where `max_tokens` does; the last text is said again and again.
    """

    def __init__(self, scripts: dict[str, list[str | Exception]]) -> None:
        self.scripts = scripts
        self.tokenizer: Any = None
        self.turns: dict[str, int] = {}
        self.said: dict[str, list[tuple[list[int], list[int]]]] = {}

    async def generate(
        self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any], **_: Any
    ) -> TokenOutput:
        kind = self.tokenizer.decode(prompt_ids).split("KIND=")[1].split("<|im_end|>")[0]
        turn = self.turns[request_id] = self.turns.get(request_id, -1) + 1
        text = self.scripts[kind][min(turn, len(self.scripts[kind]) - 1)]
        if isinstance(text, Exception):
            raise text
        ids = self.tokenizer.encode(text, add_special_tokens=False)
        ids = ids[: sampling_params.get("max_tokens", len(ids))]
        self.said.setdefault(kind, []).append((list(prompt_ids), ids))
        steps = {"global_steps": turn, "min_global_steps": turn, "max_global_steps": turn}
        await asyncio.sleep(0)
        return TokenOutput(token_ids=ids, log_probs=[-0.5] * len(ids), stop_reason="completed", extra_fields=steps)


class RewardHandle:
    """Stands for the Ray handle of a reward worker: runs verl's worker of the configuration here.

    Args:
        router_address: host:port of the reward model's servers, where there are any.
    """

    def __init__(self, config: Any, router_address: str | None = None) -> None:
        self._config = config
        self._address = router_address
        self._worker: RewardLoopWorker | None = None
        self.compute_score = self

    async def remote(self, data: DataProto) -> dict[str, Any]:
        if self._worker is None:  # it belongs to the event loop in which it is made
            self._worker = RewardLoopWorker(self._config, self._address)
        result: dict[str, Any] = await self._worker.compute_score(data)
        return result


def compose_config(model_dir: Path, tools_file: Path, *overrides: str) -> Any:
    """verl's trainer configuration for a tiny model."""
    config_dir = str(Path(verl.__file__).parent / "trainer" / "config")
    with initialize_config_dir(config_dir=config_dir, version_base=None):
        return compose(
            "ppo_trainer",
            overrides=[
                f"actor_rollout_ref.model.path={model_dir}",
                "actor_rollout_ref.rollout.name=vllm",
                "+actor_rollout_ref.model.override_config.attn_implementation=sdpa",
                f"data.max_prompt_length={PROMPT_LENGTH}",
                f"data.max_response_length={RESPONSE_LENGTH}",
                f"actor_rollout_ref.rollout.multi_turn.tool_config_path={tools_file}",
                "actor_rollout_ref.rollout.multi_turn.max_parallel_calls=2",
                "actor_rollout_ref.rollout.multi_turn.max_tool_response_length=4000",
                *overrides,
            ],
        )


def make_worker(
    config: Any, scripts: dict[str, list[str | Exception]], router_address: str | None = None
) -> tuple[Any, ScriptedClient]:
    """The worker, and the client that its model speaks through."""
    client = ScriptedClient(scripts)
    handles: list[Any] = []
    worker = AgentLoopWorker(config, client, None, handles)
    client.tokenizer = worker.tokenizer
    handles.append(RewardHandle(config, router_address))
    return worker, client


def batch(kinds: list[str], agent: str, **columns: list[Any]) -> DataProto:
    """One row per kind; `columns` replace or add to what a data set has."""
    n = len(kinds)
    rows: dict[str, list[Any]] = {
        "raw_prompt": [[{"role": "user", "content": f"Question. KIND={kind}"}] for kind in kinds],
        "agent_name": [agent] * n,
        "data_source": ["openai/gsm8k"] * n,
        "reward_model": [{"ground_truth": "7"}] * n,
        "extra_info": [{"index": i} for i in range(n)],
        "tools_kwargs": [{}] * n,
        **columns,
    }
    data = DataProto.from_dict(non_tensors={name: _column(values) for name, values in rows.items()})
    data.non_tensor_batch["index"] = np.arange(n)
    data.meta_info = {"global_steps": 1, "validate": False}
    return data


def _column(values: list[Any]) -> np.ndarray[Any, Any]:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


async def close_tools(worker: Any) -> None:
    for tool in worker.tools:
        await tool.aclose()
