"""What only a server can do: go away in the middle, stand beside another, and speak chat."""

from __future__ import annotations

import asyncio
from pathlib import Path

from rollbox.rewards.trajectory import score_trajectory
from rollbox.rollout.engines.base import ChatEngine
from rollbox.rollout.engines.completions import CompletionsEngine
from rollbox.rollout.engines.openai_chat import OpenAIChatEngine
from rollbox.schemas.generation import SamplingParams, TokenOutput
from rollbox.schemas.trajectory import StopReason

from .conftest import VllmServer
from .test_engines import CALL, make_loop, sample

REGEX = {"structured_outputs": {"regex": CALL}}


async def test_a_killed_server_masks_the_sample_and_another_takes_over(
    server: VllmServer, doomed_server: VllmServer, model_dir: Path
) -> None:
    alone = CompletionsEngine(doomed_server.url, model_dir, extra_body=REGEX, retry_s=0.5)
    paired = CompletionsEngine([doomed_server.url, server.url], model_dir, extra_body=REGEX)
    second_turn = asyncio.Barrier(3)

    async with alone, paired:
        for engine in (alone, paired):
            _wait_before_second_turn(engine, second_turn)
        running = [asyncio.create_task(make_loop(engine, max_turns=3).run(sample(5))) for engine in (alone, paired)]
        async with asyncio.timeout(120):
            await second_turn.wait()
            doomed_server.kill()
            await second_turn.wait()
            lost, saved = await asyncio.gather(*running)
    assert (lost.stop_reason, lost.infra_failed, lost.num_turns) == (StopReason.INFRA, True, 1)
    assert lost.error is not None
    assert doomed_server.url in lost.error
    assert await score_trajectory(lost) is None
    assert (saved.stop_reason, saved.infra_failed, saved.num_turns) == (StopReason.MAX_TURNS, False, 3)


def _wait_before_second_turn(engine: CompletionsEngine, barrier: asyncio.Barrier) -> None:
    generate, turns = engine.generate, 0

    async def waiting(request_id: str, prompt_ids: list[int], sampling: SamplingParams) -> TokenOutput:
        nonlocal turns
        turns += 1
        if turns == 2:
            await barrier.wait()
            await barrier.wait()
        return await generate(request_id, prompt_ids, sampling)

    engine.generate = waiting  # type: ignore[method-assign]


async def test_chat_goes_through_the_same_loop_and_says_that_it_is_not_exact(
    server: VllmServer, model_dir: Path
) -> None:
    async with OpenAIChatEngine(server.url, model_dir, extra_body=REGEX) as engine:
        assert isinstance(engine, ChatEngine)
        trajectory = await make_loop(engine, max_turns=3).run(sample(6))
    assert trajectory.stop_reason is StopReason.MAX_TURNS
    assert [record.tool for record in trajectory.records] == ["calculator"] * 3
    assert [message["role"] for message in trajectory.messages[:3]] == ["user", "assistant", "tool"]
    assert trajectory.messages[1]["tool_calls"]
    assert not trajectory.token_exact
    assert 0 < sum(trajectory.response_mask) < len(trajectory.response_ids)
    assert set(trajectory.response_logprobs) == {0.0}


async def test_chat_without_a_tokenizer_makes_no_tokens_up(server: VllmServer) -> None:
    async with OpenAIChatEngine(server.url, extra_body=REGEX) as engine:
        trajectory = await make_loop(engine, max_turns=2).run(sample(7))
    assert trajectory.stop_reason is StopReason.MAX_TURNS
    assert len(trajectory.records) == 2
    assert (trajectory.prompt_ids, trajectory.response_ids, trajectory.token_exact) == ([], [], False)
    assert all("<tool_call>" in text for text in trajectory.assistant_texts)
