"""What the multi-turn loop itself costs: an engine and a tool that take no time, real tokenizer, parser and dispatch.

    python bench/rollout.py [--trajectories 2000] [--concurrency 1000] [--turns 5] [--in-flight 10000]

Prints CPU milliseconds per assistant turn, and the memory of many trajectories that all wait for their tool at a time.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import time
from typing import Any, ClassVar

from rollbox.demo.tokenizer import build_tokenizer
from rollbox.rollout.loop import RolloutLimits, RolloutLoop
from rollbox.rollout.parsers import get_parser
from rollbox.rollout.runner import run_tasks, tasks_of
from rollbox.schemas.generation import SamplingParams, TokenOutput
from rollbox.schemas.tool import ToolResponse
from rollbox.schemas.trajectory import Sample, Trajectory
from rollbox.tools.base import BaseTool

CALL = 'I will compute that.\n<tool_call>\n{"name": "nothing", "arguments": {"text": "17 * 23 + 4"}}\n</tool_call>'
ANSWER = "The result is 395.\n#### 395"


class NothingTool(BaseTool):
    """Answers at once, or when `gate` opens."""

    default_schema: ClassVar[dict[str, Any]] = {
        "type": "function",
        "function": {
            "name": "nothing",
            "description": "Does nothing.",
            "parameters": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
        },
    }
    gate: asyncio.Event | None = None
    waiting = 0

    async def execute(self, instance_id: str, parameters: dict[str, Any], **kwargs: Any) -> Any:
        if self.gate is not None:
            self.waiting += 1
            await self.gate.wait()
        return ToolResponse(text="395"), 0.0, {}


class NoEngine:
    """Says ready tokens: `turns - 1` calls, then the answer."""

    def __init__(self, turns: int) -> None:
        self.tokenizer: Any = build_tokenizer()
        self.max_context = 1 << 20
        self._turns = turns
        self._said: dict[str, int] = {}
        self._call, self._answer = (self._output(text) for text in (CALL, ANSWER))

    def _output(self, text: str) -> TokenOutput:
        ids = [*self.tokenizer.encode(text, add_special_tokens=False), self.tokenizer.eos_token_id]
        return TokenOutput(token_ids=ids, logprobs=[-0.1] * len(ids), finish_reason="stop")

    async def generate(self, request_id: str, prompt_ids: list[int], sampling: SamplingParams) -> TokenOutput:
        said = self._said[request_id] = self._said.get(request_id, 0) + 1
        if said < self._turns:
            return self._call
        del self._said[request_id]
        return self._answer


def samples(number: int) -> list[Sample]:
    message = {"role": "user", "content": "What is 17 * 23 + 4? Show your work, then give the answer after ####."}
    return [Sample(sample_id=str(i), data_source="openai/gsm8k", messages=[message]) for i in range(number)]


async def _unscored(trajectory: Trajectory) -> None:
    """Scoring is not what is measured."""


async def loop_cost(trajectories: int, concurrency: int, turns: int) -> None:
    loop = _loop(NothingTool(), turns)
    done = 0
    started, wall = time.process_time(), time.perf_counter()
    async for trajectory in run_tasks(loop, tasks_of(samples(trajectories)), _unscored, concurrency=concurrency):
        assert trajectory.num_turns == turns, trajectory
        done += 1
    cpu_s, wall_s = time.process_time() - started, time.perf_counter() - wall
    per_turn_ms = cpu_s / (done * turns) * 1000
    print(f"{done} trajectories of {turns} turns, {concurrency} in flight: {per_turn_ms:.3f} ms CPU per turn, "
          f"{done * turns / wall_s:.0f} turns/s")  # fmt: skip


async def memory_in_flight(number: int, turns: int) -> None:
    tool = NothingTool()
    tool.gate = asyncio.Event()
    loop = _loop(tool, turns)
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    running = [asyncio.create_task(loop.run(sample)) for sample in samples(number)]
    while tool.waiting < number:
        await asyncio.sleep(0.01)
    used_mb = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb) / 1024
    tool.gate.set()
    await asyncio.gather(*running)
    print(f"{number} trajectories waiting for their tool: {used_mb:.0f} MB, {used_mb * 1024 / number:.1f} kB each")


def _loop(tool: BaseTool, turns: int) -> RolloutLoop:
    limits = RolloutLimits(max_turns=turns, max_response_tokens=1 << 20)
    return RolloutLoop(NoEngine(turns), {"nothing": tool}, get_parser("hermes"), None, limits)  # type: ignore[arg-type]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trajectories", type=int, default=2000)
    parser.add_argument("--concurrency", type=int, default=1000)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--in-flight", type=int, default=10_000)
    options = parser.parse_args()
    asyncio.run(loop_cost(options.trajectories, options.concurrency, options.turns))
    asyncio.run(memory_in_flight(options.in_flight, options.turns))


if __name__ == "__main__":
    main()
