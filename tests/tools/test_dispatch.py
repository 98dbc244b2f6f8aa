"""One place runs the calls: lifecycle, error kinds, deadlines, truncation and the record."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rollbox.schemas.errors import ErrorKind, InfraError
from rollbox.schemas.tool import ToolCall
from rollbox.tools import dispatch
from rollbox.tools.calculator import CalculatorTool
from rollbox.tools.dispatch import Answer, DispatchLimits, ToolBox, TrajectoryTools

from .counting_tool import CountingTool


@pytest.fixture
def tool() -> CountingTool:
    return CountingTool()


def session(tool: CountingTool, **limits: Any) -> TrajectoryTools:
    tools = {tool.name: tool}
    return ToolBox(tools, DispatchLimits(**limits)).trajectory("t1")


async def one(tool: CountingTool, arguments: dict[str, Any], name: str = "count", **limits: Any) -> Answer:
    async with session(tool, **limits) as tools:
        return await tools.call(ToolCall(name=name, arguments=arguments), turn=2, index=1)


async def test_an_instance_lives_for_the_trajectory(tool: CountingTool) -> None:
    async with session(tool) as tools:
        texts = [(await tools.call(ToolCall(name="count", arguments={}), i, 0)).response.text for i in range(3)]
        assert await tools.calc_rewards() == {"count": 3.0}
    assert texts == ["1", "2", "3"]
    assert [event for event, _ in tool.log] == ["create", "execute", "execute", "execute", "release"]


async def test_parallel_first_calls_share_one_instance(tool: CountingTool) -> None:
    async with session(tool) as tools:
        answers = await asyncio.gather(*(tools.call(ToolCall(name="count", arguments={}), 0, i) for i in range(5)))
    assert sorted(answer.response.text or "" for answer in answers) == ["1", "2", "3", "4", "5"]
    assert [event for event, _ in tool.log].count("create") == 1


async def test_create_kwargs_reach_the_tool(tool: CountingTool) -> None:
    tools = {"count": tool}
    kwargs = {"count": {"create_kwargs": {"start": 10}}}
    async with ToolBox(tools).trajectory("t", kwargs) as running:
        answer = await running.call(ToolCall(name="count", arguments={}), 0, 0)
    assert answer.response.text == "11"


@pytest.mark.parametrize(
    ("arguments", "kind", "shown", "error", "executed"),
    [
        ({"mode": "refuse"}, ErrorKind.USER_CODE, "cannot count that", "cannot count that", True),
        ({"mode": "program_error"}, ErrorKind.USER_CODE, "NameError", "NameError: x", True),
        ({"mode": "raise"}, ErrorKind.INFRA, "is unavailable", "RuntimeError: a bug in the tool", True),
        ({"mode": "infra"}, ErrorKind.INFRA, "is unavailable", "the sandbox is down", True),
        ({"mode": "hang"}, ErrorKind.INFRA, "is unavailable", "no answer within 0.2 s", True),
        ({"mode": "garbage"}, ErrorKind.INFRA, "is unavailable", "returned str", True),
        ({"mode": "pair"}, ErrorKind.INFRA, "is unavailable", "returned tuple", True),
        ({"mode": "nan"}, ErrorKind.INFRA, "is unavailable", "step reward of tool 'count' is nan", True),
        ({"mode": "bare_text"}, ErrorKind.INFRA, "is unavailable", "returned bytes as its text", True),
        ({"mode": "bad_metric"}, ErrorKind.INFRA, "is unavailable", "queue_ms, is not a number: 'soon'", True),
        ({"mode": "bad_kind"}, ErrorKind.INFRA, "is unavailable", "error_kind, is 'sad'", True),
        ({"mode": "cancel_itself"}, ErrorKind.INFRA, "is unavailable", "cancelled its own call", True),
        ({"mode": "exit"}, ErrorKind.INFRA, "is unavailable", "raised SystemExit: 4", True),
        ({"step": "x"}, ErrorKind.ARGUMENTS, "step: 'x' is not of type 'integer'", "step", False),
        ({"stop": 1}, ErrorKind.ARGUMENTS, "unknown argument 'stop'. Expected: mode, step.", "stop", False),
    ],
)
async def test_what_goes_wrong_has_a_kind(
    tool: CountingTool, arguments: dict[str, Any], kind: ErrorKind, shown: str, error: str, executed: bool
) -> None:
    answer = await one(tool, arguments, call_timeout_s=0.2)
    assert answer.record.error_kind is kind
    assert shown in (answer.response.text or "")
    assert error in (answer.record.error or "")
    assert answer.record.executed is executed
    assert (answer.record.turn, answer.record.index, answer.record.tool) == (2, 1, "count")
    assert tool.counts == {}, "released whatever happened"


async def test_an_internal_fault_is_never_shown_to_the_model(tool: CountingTool) -> None:
    answer = await one(tool, {"mode": "raise"})
    assert "bug" not in (answer.response.text or "")


async def test_an_unknown_tool_gets_the_list_and_the_nearest(tool: CountingTool) -> None:
    answer = await one(tool, {}, name="counts")
    assert answer.record.error_kind is ErrorKind.UNKNOWN_TOOL
    assert answer.response.text == "There is no tool 'counts'. Did you mean 'count'? Available tools: count."


async def test_metrics_fill_the_record(tool: CountingTool) -> None:
    record = (await one(tool, {"mode": "metrics"})).record
    assert (record.queue_ms, record.run_ms, record.retries, record.tool_reward) == (3.0, 4.0, 2, 0.25)
    assert record.metrics == {"depth": 7}


async def test_retries_of_a_failed_call_are_kept(tool: CountingTool) -> None:
    assert (await one(tool, {"mode": "infra"})).record.retries == 3


async def test_long_text_keeps_both_ends(tool: CountingTool) -> None:
    answer = await one(tool, {"mode": "long"}, max_output_chars=20)
    assert answer.response.text == "A" * 10 + "\n[... 980 of 1000 characters left out ...]\n" + "B" * 10
    assert (answer.record.output_chars, answer.record.truncated) == (1000, True)
    assert answer.record.shown_chars == len(answer.response.text)


async def test_one_hanging_call_does_not_delay_its_neighbour(tool: CountingTool) -> None:
    async with session(tool, call_timeout_s=30) as tools:
        hanging = asyncio.create_task(tools.call(ToolCall(name="count", arguments={"mode": "hang"}), 0, 0))
        await tool.hanging.wait()
        answer = await tools.call(ToolCall(name="count", arguments={}), 0, 1)
        assert answer.response.text == "1"
        assert not hanging.done()
        hanging.cancel()
        with pytest.raises(asyncio.CancelledError):
            await hanging


async def test_cancellation_passes_through_and_releases(tool: CountingTool) -> None:
    task = asyncio.create_task(one(tool, {"mode": "hang"}))
    await tool.hanging.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [event for event, _ in tool.log] == ["create", "execute", "release"]


async def test_release_that_raises_costs_nothing(tool: CountingTool, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(instance_id: str, **kwargs: Any) -> None:
        raise RuntimeError("cannot release")

    monkeypatch.setattr(tool, "release", broken)
    assert (await one(tool, {})).response.text == "1"


async def test_create_that_raises_is_tried_again_at_the_next_call(
    tool: CountingTool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(instance_id: str | None = None, **kwargs: Any) -> Any:
        raise RuntimeError("cannot create")

    async with session(tool) as tools:
        with monkeypatch.context() as patch:
            patch.setattr(tool, "create", broken)
            first = await tools.call(ToolCall(name="count", arguments={}), 0, 0)
        second = await tools.call(ToolCall(name="count", arguments={}), 1, 0)
    assert (first.record.error_kind, first.record.executed) == (ErrorKind.INFRA, False)
    assert second.response.text == "1"


async def test_calc_reward_that_fails_is_an_infra_fault(tool: CountingTool, monkeypatch: pytest.MonkeyPatch) -> None:
    async def nan(instance_id: str, **kwargs: Any) -> float:
        return float("nan")

    monkeypatch.setattr(tool, "calc_reward", nan)
    async with session(tool) as tools:
        await tools.call(ToolCall(name="count", arguments={}), 0, 0)
        with pytest.raises(InfraError, match="calc_reward of tool 'count'"):
            await tools.calc_rewards()


async def test_a_safe_reading_of_an_argument_is_run_and_reported(tool: CountingTool) -> None:
    answer = await one(tool, {"step": " 5 "})
    assert answer.response.text == "5"
    assert answer.record.arguments == {"step": 5}
    assert answer.record.coerced == ["step: ' 5 ' was read as the integer 5"]


async def test_a_tool_that_ignores_its_cancellation_is_left_behind(
    tool: CountingTool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "_GRACE_S", 0.01)
    before = asyncio.all_tasks()
    answer = await one(tool, {"mode": "stubborn"}, call_timeout_s=0.05)
    assert answer.record.error_kind is ErrorKind.INFRA
    assert tool.cancelled == 1
    assert (await one(tool, {})).response.text == "1"
    [stubborn] = asyncio.all_tasks() - before
    stubborn.get_coro().close()  # type: ignore[union-attr]


async def test_odd_text_and_metrics_can_be_written_down(tool: CountingTool) -> None:
    answer = await one(tool, {"mode": "surrogate"})
    assert answer.response.text == "half \\ud83d"
    record = (await one(tool, {"mode": "odd_metrics"})).record
    assert record.error_kind is None
    assert "object object" in record.model_dump_json()


async def test_a_response_of_another_class_with_the_same_parts_is_taken(tool: CountingTool) -> None:
    answer = await one(tool, {"mode": "another_response"})
    assert (answer.response.text, answer.record.tool_reward, answer.record.error_kind) == ("theirs", 0.0, None)


async def test_output_is_cut_by_tokens() -> None:
    tool = CountingTool()
    limits = DispatchLimits(max_output_tokens=10, keep="head")
    box = ToolBox({"count": tool}, limits, encode=lambda text: list(text.encode()))
    async with box.trajectory("t") as tools:
        answer = await tools.call(ToolCall(name="count", arguments={"mode": "long"}), 0, 0)
    assert answer.response.text == "A" * 10 + "\n[... 990 of 1000 tokens left out ...]"
    assert answer.record.shown_tokens == len(answer.response.text)
    with pytest.raises(ValueError, match="encode"):
        ToolBox({"count": tool}, limits)


async def _started(tool: CountingTool, count: int) -> None:
    while tool.running < count:  # noqa: ASYNC110 - a few turns of the loop, no waiting
        await asyncio.sleep(0)


@pytest.mark.parametrize("process_wide", [False, True])
async def test_no_more_calls_run_at_a_time_than_allowed(process_wide: bool) -> None:
    tool = CountingTool({} if process_wide else {"max_concurrency": 3})
    box = ToolBox({"count": tool}, DispatchLimits(max_concurrency=3 if process_wide else None))

    async def call(i: int) -> Answer:
        async with box.trajectory(f"t{i}") as tools:
            return await tools.call(ToolCall(name="count", arguments={"mode": "wait"}), 0, 0)

    running = [asyncio.create_task(call(i)) for i in range(10)]
    await _started(tool, 3)
    for _ in range(20):
        await asyncio.sleep(0)
    assert tool.running == 3
    tool.may_end.set()
    answers = await asyncio.gather(*running)
    assert tool.most == 3
    assert sum(answer.record.queue_ms > 0 for answer in answers) >= 7
    assert all(answer.record.error_kind is None for answer in answers)


async def test_calls_that_wait_for_a_busy_tool_do_not_hold_up_the_others() -> None:
    busy, free = CountingTool({"max_concurrency": 1}), CalculatorTool()
    box = ToolBox({"count": busy, "calculator": free}, DispatchLimits(max_concurrency=2))
    async with box.trajectory("t") as tools:
        waiting = [
            asyncio.create_task(tools.call(ToolCall(name="count", arguments={"mode": "wait"}), 0, i)) for i in range(5)
        ]
        await _started(busy, 1)
        answer = await tools.call(ToolCall(name="calculator", arguments={"expression": "6*7"}), 0, 9)
        busy.may_end.set()
        await asyncio.gather(*waiting)
    assert answer.response.text == "42"


async def test_a_slot_that_never_comes_free_is_overload() -> None:
    tool = CountingTool({"max_concurrency": 1})
    box = ToolBox({"count": tool}, DispatchLimits(call_timeout_s=0.1))
    async with box.trajectory("t") as tools, tools.box.tools["count"].slots:  # type: ignore[union-attr]
        answer = await tools.call(ToolCall(name="count", arguments={}), 0, 0)
    assert answer.record.error_kind is ErrorKind.OVERLOADED
    assert answer.record.executed is False
    assert tool.slots is not None
    assert tool.slots.free == 1
