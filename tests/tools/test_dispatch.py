"""One place runs the calls: lifecycle, error kinds, deadlines, truncation and the record."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rollbox.schemas.errors import ErrorKind, InfraError
from rollbox.schemas.tool import ToolCall
from rollbox.tools.dispatch import Answer, DispatchLimits, TrajectoryTools, make_validators

from .counting_tool import CountingTool


@pytest.fixture
def tool() -> CountingTool:
    return CountingTool()


def session(tool: CountingTool, **limits: Any) -> TrajectoryTools:
    tools = {tool.name: tool}
    return TrajectoryTools(tools, make_validators(tools), "t1", limits=DispatchLimits(**limits))


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
    async with TrajectoryTools(tools, make_validators(tools), "t", kwargs) as running:
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
