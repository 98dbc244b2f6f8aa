"""One set of promises, kept by vLLM in process and by a vLLM server over HTTP."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rollbox.rollout.engines.base import Engine
from rollbox.rollout.engines.completions import CompletionsEngine
from rollbox.rollout.engines.vllm import VllmEngine
from rollbox.rollout.loop import RolloutLimits, RolloutLoop
from rollbox.rollout.parsers import get_parser
from rollbox.rollout.runner import run_tasks, tasks_of
from rollbox.schemas.errors import EngineError
from rollbox.schemas.generation import SamplingParams, TokenOutput
from rollbox.schemas.trajectory import Sample, StopReason, Trajectory
from rollbox.tools.calculator import CalculatorTool

from .conftest import VllmServer

BLOCK = 32
CALL = r'<tool_call>\n\{"name": "calculator", "arguments": \{"expression": "[0-9] [+*-] [0-9]"\}\}\n</tool_call>'


@dataclass
class Served:
    """An engine, how to hold its model to a regular expression or a length, and how to read vLLM's own metrics."""

    engine: Engine
    hold_to: Callable[[str], None]
    at_least: Callable[[int], None]
    metric: Callable[[str], Awaitable[float]]


@pytest.fixture(params=["in_process", "server"])
def served(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Served:
    if request.param == "in_process":
        return _in_process(request.getfixturevalue("vllm_engine"), monkeypatch)
    return _over_http(request.getfixturevalue("http_engine"), request.getfixturevalue("server"), monkeypatch)


def _in_process(engine: VllmEngine, monkeypatch: pytest.MonkeyPatch) -> Served:
    from prometheus_client import REGISTRY
    from vllm.sampling_params import StructuredOutputsParams

    def hold_to(regex: str) -> None:
        monkeypatch.setitem(engine._sampling_args, "structured_outputs", StructuredOutputsParams(regex=regex))

    async def metric(name: str) -> float:
        samples = [sample for family in REGISTRY.collect() for sample in family.samples]
        return sum(sample.value for sample in samples if sample.name == f"vllm:{name}")

    return Served(engine, hold_to, lambda n: monkeypatch.setitem(engine._sampling_args, "min_tokens", n), metric)


def _over_http(engine: CompletionsEngine, server: VllmServer, monkeypatch: pytest.MonkeyPatch) -> Served:
    def hold_to(regex: str) -> None:
        monkeypatch.setitem(engine._extra, "structured_outputs", {"regex": regex})

    return Served(engine, hold_to, lambda n: monkeypatch.setitem(engine._extra, "min_tokens", n), server.metric)


def make_loop(engine: Any, max_tokens: int = 96, **limits: Any) -> RolloutLoop:
    sampling = SamplingParams(max_tokens=max_tokens, seed=7)
    return RolloutLoop(
        engine, {"calculator": CalculatorTool()}, get_parser("hermes"), sampling, RolloutLimits(**limits)
    )


def sample(number: int) -> Sample:
    messages = [{"role": "user", "content": f"What is {number} + {number}?"}]
    return Sample(sample_id=str(number), data_source="openai/gsm8k", messages=messages, ground_truth=str(2 * number))


class Recorder:
    """Passes everything on and keeps what went through."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.tokenizer, self.max_context = engine.tokenizer, engine.max_context
        self.turns: dict[str, list[tuple[list[int], TokenOutput]]] = {}

    async def generate(self, request_id: str, prompt_ids: list[int], sampling: SamplingParams) -> TokenOutput:
        output = await self.engine.generate(request_id, prompt_ids, sampling)
        self.turns.setdefault(request_id, []).append((list(prompt_ids), output))
        return output


def check_tokens(trajectory: Trajectory, turns: list[tuple[list[int], TokenOutput]]) -> None:
    """What came back is in the trajectory as it came, and is what the next prompt began with."""
    ids = trajectory.prompt_ids + trajectory.response_ids
    for prompt, output in turns:
        end = len(prompt) + len(output.token_ids)
        assert ids[: len(prompt)] == prompt
        assert ids[len(prompt) : end] == output.token_ids
        start = len(prompt) - len(trajectory.prompt_ids)
        kept = slice(start, start + len(output.token_ids))
        assert trajectory.response_logprobs[kept] == output.logprobs
        assert set(trajectory.response_mask[kept]) <= {1}


async def test_logprobs_agree_with_a_plain_forward_pass(served: Served, reference: Any) -> None:
    prompts = [[5, 6, 7], [9] * 40, [11], list(range(20, 300))]
    sampling = SamplingParams(max_tokens=24)
    outputs = await asyncio.gather(*(served.engine.generate(str(i), p, sampling) for i, p in enumerate(prompts)))
    for prompt, output in zip(prompts, outputs, strict=True):
        assert len(output.token_ids) == 24 or output.finish_reason == "stop"
        expected = reference(prompt + output.token_ids)[len(prompt) - 1 :]
        assert output.logprobs == pytest.approx(expected, abs=1e-3)


async def test_logprobs_are_the_models_at_any_temperature(served: Served, reference: Any) -> None:
    output = await served.engine.generate("t", [5, 6, 7], SamplingParams(max_tokens=16, temperature=0.5, top_p=0.9))
    assert output.logprobs == pytest.approx(reference([5, 6, 7, *output.token_ids])[2:], abs=1e-3)


async def test_sampling_is_what_was_asked_for_not_what_the_model_folder_says(served: Served) -> None:
    # Its generation_config.json asks for the likeliest token only, and against repetition.
    prompt = list(range(100, 120))
    one, same, other = [
        (await served.engine.generate("s", prompt, SamplingParams(max_tokens=20, seed=seed))).token_ids
        for seed in (1, 1, 2)
    ]
    assert one == same
    assert one != other


async def test_greedy_takes_the_likeliest_token(served: Served, reference: Any, model_dir: Path) -> None:
    from rollbox.rollout.engines.huggingface import HuggingFaceEngine

    greedy = SamplingParams(max_tokens=40, temperature=0)
    output = await served.engine.generate("g", [5, 6, 7], greedy)
    async with HuggingFaceEngine(model_dir) as plain:
        assert output.token_ids == (await plain.generate("g", [5, 6, 7], greedy)).token_ids


async def test_a_stop_token_ends_the_turn_and_is_kept(served: Served) -> None:
    long = await served.engine.generate("l", [5, 6], SamplingParams(max_tokens=9, temperature=0))
    stop_id = long.token_ids[4]
    stopping = SamplingParams(max_tokens=9, temperature=0, stop_token_ids=[stop_id])
    stopped = await served.engine.generate("x", [5, 6], stopping)
    assert (long.finish_reason, len(long.token_ids)) == ("length", 9)
    assert stopped.finish_reason == "stop"
    assert stopped.token_ids == long.token_ids[: long.token_ids.index(stop_id) + 1]


async def test_the_context_limit(served: Served) -> None:
    assert served.engine.max_context == 512
    with pytest.raises(EngineError, match="512"):
        await served.engine.generate("c", [7] * 512, SamplingParams(max_tokens=1))
    with pytest.raises(EngineError, match="0 tokens"):
        await served.engine.generate("c", [], SamplingParams(max_tokens=1))
    last = await served.engine.generate("c", [7] * 508, SamplingParams(max_tokens=100, temperature=0))
    assert len(last.token_ids) <= 4


async def test_what_vllm_refuses_is_an_engine_error_with_its_words(served: Served) -> None:
    with pytest.raises(EngineError, match="vocab"):
        await served.engine.generate("v", [10**6], SamplingParams(max_tokens=1))


async def test_a_rollout_ends_where_the_context_does(served: Served) -> None:
    question = sample(1)
    question.messages[0]["content"] = "1 + 1 " * 60
    loop = make_loop(served.engine, max_tokens=4096, max_response_tokens=4096)
    trajectory = await loop.run(question)
    assert len(trajectory.prompt_ids) + len(trajectory.response_ids) <= 512
    assert not trajectory.infra_failed


async def test_tool_calls_over_several_turns_keep_every_id(served: Served) -> None:
    served.hold_to(CALL)
    recorder = Recorder(served.engine)
    before = await served.metric("prefix_cache_hits_total")
    trajectory = await make_loop(recorder, max_turns=3).run(sample(3), "kept")
    assert trajectory.stop_reason is StopReason.MAX_TURNS
    assert [record.tool for record in trajectory.records] == ["calculator"] * 3
    assert all(record.executed and record.error_kind is None for record in trajectory.records)
    turns = recorder.turns["kept"]
    check_tokens(trajectory, turns)
    # vLLM found in its cache the blocks that the turn before had filled; its last id was sampled but never computed.
    known = [len(prompt) + len(output.token_ids) - 1 for prompt, output in turns[:-1]]
    reused = sum(tokens // BLOCK * BLOCK for tokens in known)
    assert reused >= 2 * BLOCK
    assert await served.metric("prefix_cache_hits_total") - before >= reused


async def test_drift_would_have_been_seen(served: Served) -> None:
    """Ids sampled under a grammar are not those that their text has: what the rule about sampled ids is for."""
    served.hold_to(CALL)
    trajectory = await make_loop(served.engine, max_turns=2).run(sample(4))
    [first, _] = [span for span in trajectory.spans if span.kind == "assistant"]
    ids = trajectory.response_ids[first.start : first.end]
    text = served.engine.tokenizer.decode(ids, skip_special_tokens=False)
    assert served.engine.tokenizer.encode(text, add_special_tokens=False) != ids


async def _unscored(trajectory: Trajectory) -> None:
    """No rewards: what is tested is the engine."""


async def test_64_trajectories_at_once(served: Served) -> None:
    served.hold_to(CALL)
    recorder = Recorder(served.engine)
    loop = make_loop(recorder, max_turns=2)
    questions = [sample(number) for number in range(64)]
    done = [t async for t in run_tasks(loop, tasks_of(questions), _unscored, concurrency=64)]
    assert sorted(int(trajectory.sample.sample_id) for trajectory in done) == list(range(64))
    assert not [trajectory.error for trajectory in done if trajectory.infra_failed]
    assert {len(trajectory.records) for trajectory in done} == {2}
    for trajectory in done:
        check_tokens(trajectory, recorder.turns[trajectory.trajectory_id])


async def test_cancelling_frees_the_request(served: Served) -> None:
    served.at_least(480)
    endless = [
        asyncio.create_task(served.engine.generate(f"e{i}", [5, i], SamplingParams(max_tokens=500))) for i in range(4)
    ]
    await _until(served, "num_requests_running", lambda value: value == 4)
    for task in endless:
        task.cancel()
    for result in await asyncio.gather(*endless, return_exceptions=True):
        assert isinstance(result, asyncio.CancelledError)
    # 500 tokens take longer than this: what is freed was not finished.
    generated = await served.metric("generation_tokens_total")
    served.at_least(0)
    # Moves the metrics on, which an idle engine does not.
    await served.engine.generate("n", [5], SamplingParams(max_tokens=2))
    await _until(served, "num_requests_running", lambda value: value == 0)
    assert await served.metric("generation_tokens_total") - generated < 4 * 400


async def _until(served: Served, name: str, holds: Callable[[float], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds(value := await served.metric(name)):
        assert time.monotonic() < deadline, f"{name} is {value}"
        await asyncio.sleep(0.01)
