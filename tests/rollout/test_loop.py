"""The multi-turn loop with real tokens, tools and parser, and scripted text where a case must be exact."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from rollbox.rewards.trajectory import score_trajectory
from rollbox.rollout.loop import RolloutLimits, RolloutLoop
from rollbox.rollout.parsers import get_parser
from rollbox.schemas.errors import EngineError, ErrorKind
from rollbox.schemas.generation import SamplingParams
from rollbox.schemas.trajectory import Sample, StopReason, Trajectory
from rollbox.tools.calculator import CalculatorTool
from rollbox.tools.dispatch import DispatchLimits

from ..tools.counting_tool import CountingTool
from .chat_templates import family_tokenizer

CALL = '<tool_call>\n{"name": "calculator", "arguments": {"expression": "17 * 23"}}\n</tool_call>'
COUNT = '<tool_call>\n{"name": "count", "arguments": {}}\n</tool_call>'
SAMPLE = Sample(
    sample_id="s",
    data_source="openai/gsm8k",
    messages=[{"role": "user", "content": "What is 17 * 23?"}],
    ground_truth="391",
)
Roll = Callable[..., Any]


@pytest.fixture
def counting() -> CountingTool:
    return CountingTool()


@pytest.fixture
def roll(tokenizer: Any, counting: CountingTool, scripted_engine: Any) -> Roll:
    async def run(
        *script: str | Exception, max_context: int = 4096, max_tokens: int = 256, **limits: Any
    ) -> Trajectory:
        engine = scripted_engine(list(script), max_context=max_context)
        tools = {"calculator": CalculatorTool(), "count": counting}
        sampling = SamplingParams(max_tokens=max_tokens)
        loop = RolloutLoop(engine, tools, get_parser("hermes"), sampling, RolloutLimits(**limits))
        trajectory = await loop.run(SAMPLE)
        _check_tokens(trajectory, engine.prompts, tokenizer)
        return trajectory

    return run


def _check_tokens(trajectory: Trajectory, prompts: list[list[int]], tokenizer: Any) -> None:
    """What the engine saw before each turn is exactly the ids recorded up to there."""
    everything = trajectory.prompt_ids + trajectory.response_ids
    for prompt in prompts:
        assert everything[: len(prompt)] == prompt
    for span in trajectory.spans:
        if span.kind == "assistant":
            ids = trajectory.response_ids[span.start : span.end]
            assert trajectory.assistant_texts[span.turn] == tokenizer.decode(
                ids[:-1] if ids[-1:] == [tokenizer.eos_token_id] else ids
            )
            assert set(trajectory.response_logprobs[span.start : span.end]) <= {-0.25}
        else:
            assert set(trajectory.response_logprobs[span.start : span.end]) <= {0.0}


async def test_a_call_is_run_and_its_output_is_the_next_message(roll: Roll) -> None:
    trajectory = await roll(CALL, "#### 391")
    assert trajectory.stop_reason is StopReason.ANSWERED
    assert [message["role"] for message in trajectory.messages] == ["user", "assistant", "tool", "assistant"]
    assert trajectory.messages[2]["content"] == "391"
    assert [(span.kind, span.turn) for span in trajectory.spans] == [
        ("assistant", 0),
        ("context", 0),
        ("assistant", 1),
    ]
    [record] = trajectory.records
    assert (record.tool, record.arguments, record.error_kind) == ("calculator", {"expression": "17 * 23"}, None)
    assert record.token_span == (trajectory.spans[1].start, trajectory.spans[1].end)
    rewards = await score_trajectory(trajectory)
    assert rewards is not None
    assert rewards.parts == {"correct": 1.0, "format": 0.1, "tool/calculator": 0.0}
    assert rewards.total == pytest.approx(1.1)


async def test_t02_tool_text_is_not_the_answer(roll: Roll) -> None:
    trajectory = await roll(CALL, "I do not know.")
    rewards = await score_trajectory(trajectory)
    assert "391" in trajectory.messages[2]["content"]
    assert rewards is not None
    assert (rewards.total, rewards.correct) == (0.0, False)


async def test_a_number_in_the_arguments_is_not_the_answer(roll: Roll) -> None:
    trajectory = await roll(
        '<tool_call>\n{"name": "calculator", "arguments": {"expression": "391"}}\n</tool_call>', max_turns=1
    )
    rewards = await score_trajectory(trajectory)
    assert rewards is not None
    assert rewards.correct is False


async def test_step_rewards_and_final_reward_of_a_tool_add_up(roll: Roll) -> None:
    trajectory = await roll(COUNT, COUNT, "#### 391")
    rewards = await score_trajectory(trajectory)
    assert trajectory.tool_rewards == {"count": 2.0}
    assert rewards is not None
    assert rewards.raw["tool/count"] == pytest.approx(0.5 + 0.5 + 2.0)
    assert rewards.total == pytest.approx(sum(rewards.parts.values()))


async def test_tool_state_lives_across_turns_and_is_released(roll: Roll, counting: CountingTool) -> None:
    trajectory = await roll(COUNT, COUNT + COUNT, "#### 3")
    outputs = [message["content"] for message in trajectory.messages if message["role"] == "tool"]
    assert outputs == ["1", "2", "3"]
    assert counting.counts == {}


async def test_excess_calls_are_answered_not_dropped(roll: Roll) -> None:
    trajectory = await roll(COUNT * 3, "#### 1", max_calls_per_turn=1)
    outputs = [message["content"] for message in trajectory.messages if message["role"] == "tool"]
    assert outputs == ["1"] + ["Not run: at most 1 calls are run in one turn."] * 2
    assert [record.executed for record in trajectory.records] == [True, False, False]


async def test_an_unreadable_call_is_told_and_the_model_goes_on(roll: Roll) -> None:
    trajectory = await roll("<tool_call>\n{broken\n</tool_call>", CALL, "#### 391")
    assert "not valid JSON" in trajectory.messages[2]["content"]
    assert [record.error_kind for record in trajectory.records] == [ErrorKind.PARSE, None]
    assert trajectory.stop_reason is StopReason.ANSWERED


async def test_a_model_that_never_calls_right_is_stopped(roll: Roll) -> None:
    trajectory = await roll(*["<tool_call>\n{broken\n</tool_call>"] * 5, max_invalid_turns=2)
    assert (trajectory.stop_reason, trajectory.num_turns) == (StopReason.MAX_INVALID_CALLS, 2)


async def test_a_model_that_never_stops_calling_is_stopped(roll: Roll) -> None:
    trajectory = await roll(*[CALL] * 9, max_turns=3)
    assert (trajectory.stop_reason, trajectory.num_turns, len(trajectory.records)) == (StopReason.MAX_TURNS, 3, 3)
    assert trajectory.answer_text == ""


async def test_a_turn_cut_by_the_limit_is_not_a_call(roll: Roll, counting: CountingTool) -> None:
    trajectory = await roll(COUNT + "…")
    assert trajectory.stop_reason is StopReason.TURN_TRUNCATED
    assert trajectory.records == []
    assert counting.log == []


async def test_context_overflow_in_a_tool_answer_keeps_lengths_equal(roll: Roll, tokenizer: Any) -> None:
    long = '<tool_call>\n{"name": "count", "arguments": {"mode": "long"}}\n</tool_call>'
    trajectory = await roll(long, "#### 1", max_response_tokens=120)
    assert trajectory.stop_reason is StopReason.CONTEXT_FULL
    assert len(trajectory.response_ids) == len(trajectory.response_mask) == len(trajectory.response_logprobs)
    assert trajectory.records[0].token_span is None


async def test_the_response_limit_bounds_generation(roll: Roll) -> None:
    trajectory = await roll("word " * 100, max_response_tokens=20)
    assert len(trajectory.response_ids) == 20
    assert trajectory.stop_reason is StopReason.CONTEXT_FULL


async def test_an_engine_fault_masks_the_sample(roll: Roll) -> None:
    trajectory = await roll(CALL, EngineError("the engine is gone"))
    assert (trajectory.stop_reason, trajectory.infra_failed) == (StopReason.INFRA, True)
    assert trajectory.error == "the engine is gone"
    assert await score_trajectory(trajectory) is None


async def test_an_engine_that_ignores_the_limit_is_at_fault(scripted_engine: Any) -> None:
    class Talkative:
        """Gives all that its script holds, whatever it is allowed."""

        def __init__(self) -> None:
            self._engine = scripted_engine(["word " * 100])
            self.tokenizer, self.max_context = self._engine.tokenizer, 64

        async def generate(self, request_id: str, prompt_ids: list[int], sampling: SamplingParams) -> Any:
            unlimited = sampling.model_copy(update={"max_tokens": 10_000})
            return await self._engine.generate(request_id, prompt_ids, unlimited)

    engine: Any = Talkative()
    trajectory = await RolloutLoop(engine, {}, get_parser("hermes"), SamplingParams(max_tokens=8)).run(SAMPLE)
    assert (trajectory.stop_reason, trajectory.response_ids) == (StopReason.INFRA, [])
    assert "tokens where max_tokens=8 was asked" in str(trajectory.error)


@pytest.mark.parametrize("mode", ["raise", "infra", "garbage", "hang"])
async def test_a_tool_fault_masks_the_sample_and_the_rollout_goes_on(roll: Roll, mode: str) -> None:
    call = f'<tool_call>\n{{"name": "count", "arguments": {{"mode": "{mode}"}}}}\n</tool_call>'
    trajectory = await roll(call, "#### 391", dispatch=DispatchLimits(call_timeout_s=0.2))
    assert trajectory.stop_reason is StopReason.ANSWERED
    assert trajectory.infra_failed
    assert await score_trajectory(trajectory) is None


async def test_the_trajectory_deadline_ends_a_hanging_call(roll: Roll, counting: CountingTool) -> None:
    call = '<tool_call>\n{"name": "count", "arguments": {"mode": "hang"}}\n</tool_call>'
    trajectory = await roll(call, trajectory_timeout_s=0.3)
    assert (trajectory.stop_reason, trajectory.infra_failed) == (StopReason.DEADLINE, True)
    assert trajectory.error == "not finished within trajectory_timeout_s=0.3"
    assert counting.counts == {}


async def test_cancelling_leaves_no_tool_instance(roll: Roll, counting: CountingTool) -> None:
    call = '<tool_call>\n{"name": "count", "arguments": {"mode": "hang"}}\n</tool_call>'
    task = asyncio.create_task(roll(call))
    await counting.hanging.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [event for event, _ in counting.log] == ["create", "execute", "release"]


async def test_p06_draft_calls_are_counted_not_run(roll: Roll, cases: dict[str, Any]) -> None:
    trajectory = await roll(cases["P06"]["input"], "#### 12")
    assert [message["content"] for message in trajectory.messages if message["role"] == "tool"] == ["12"]
    assert trajectory.draft_calls == 1


async def test_a_slow_tool_delays_no_other_trajectory(
    tokenizer: Any, counting: CountingTool, scripted_engine: Any
) -> None:
    hang = '<tool_call>\n{"name": "count", "arguments": {"mode": "hang"}}\n</tool_call>'
    tools = {"calculator": CalculatorTool(), "count": counting}
    slow = RolloutLoop(scripted_engine([hang]), tools, get_parser("hermes"))
    quick = RolloutLoop(scripted_engine([CALL, "#### 391"] * 50), tools, get_parser("hermes"))
    waiting = asyncio.create_task(slow.run(SAMPLE))
    await counting.hanging.wait()
    for _ in range(50):
        assert (await quick.run(SAMPLE)).stop_reason is StopReason.ANSWERED
    assert not waiting.done()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


async def test_thinking_that_the_prompt_opened_is_thinking(scripted_engine: Any) -> None:
    engine = scripted_engine([f"perhaps {CALL} or so</think>\n{CALL}", "#### 391"])
    engine.tokenizer = family_tokenizer("r1-distill")
    loop = RolloutLoop(engine, {"calculator": CalculatorTool()}, get_parser("hermes"))
    trajectory = await loop.run(SAMPLE)
    assert (len(trajectory.records), trajectory.draft_calls) == (1, 1)
    assert trajectory.stop_reason is StopReason.ANSWERED
