"""Plain functions as tools: schema from hints and docstring, calls, context, results, and what goes wrong."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from rollbox.schemas.errors import ConfigError, ErrorKind, InfraError, ToolError
from rollbox.schemas.tool import ToolCall, ToolResponse
from rollbox.tools.base import CallContext
from rollbox.tools.dispatch import DispatchLimits, ToolBox
from rollbox.tools.function_tool import FunctionTool, as_tool_return, tool
from rollbox.user_functions import own_threads


class Place(BaseModel):
    name: str
    zone: int = 0


@tool
def visit(
    place: Place,
    kind: Literal["short", "long"],
    days: int = 3,
    note: str | None = None,
    tags: list[str] = [],  # noqa: B006
    *,
    ctx: CallContext,
) -> str:
    """Visit a place.

    More about it.

    Args:
        place: where to,
            and nothing else.
        kind (str): how long: short or long
        days: how many
    Returns:
        What was seen.
    """
    return f"{place.name}/{place.zone} {kind} {days} {note} {tags} turn {ctx.turn} truth {ctx.ground_truth}"


async def run(
    made: FunctionTool, arguments: dict[str, Any], create_kwargs: dict[str, Any] | None = None, **limits: Any
) -> Any:
    tools = {made.name: made}
    kwargs = {made.name: {"create_kwargs": create_kwargs or {}}}
    async with ToolBox(tools, DispatchLimits(**limits)).trajectory("t", kwargs) as session:
        return await session.call(ToolCall(name=made.name, arguments=arguments), 4, 0)


def test_the_schema_says_what_hints_and_docstring_say() -> None:
    assert visit.tool_schema.as_template_dict() == {
        "type": "function",
        "function": {
            "name": "visit",
            "description": "Visit a place.\n\nMore about it.",
            "parameters": {
                "type": "object",
                "properties": {
                    "place": {
                        "type": "object",
                        "description": "where to, and nothing else.",
                        "properties": {"name": {"type": "string"}, "zone": {"type": "integer", "default": 0}},
                        "required": ["name"],
                    },
                    "kind": {"type": "string", "description": "how long: short or long", "enum": ["short", "long"]},
                    "days": {"type": "integer", "description": "how many", "default": 3},
                    "note": {"type": ["string", "null"]},
                    "tags": {"type": "array", "items": {"type": "string"}, "default": []},
                },
                "required": ["place", "kind"],
            },
        },
    }


async def test_a_call_gets_typed_arguments_defaults_and_context() -> None:
    answer = await run(visit, {"place": {"name": "Lima"}, "kind": "long", "days": "5"}, {"ground_truth": "42"})
    assert answer.response.text == "Lima/0 long 5 None [] turn 4 truth 42"
    assert answer.record.error_kind is None
    assert answer.record.coerced == ["days: '5' was read as the integer 5"]


async def test_under_verls_loop_there_is_a_context_too() -> None:
    response, _, _ = await visit.execute("i7", {"place": {"name": "Lima"}, "kind": "long"})
    assert response.text is not None
    assert response.text.endswith("turn 0 truth None")


def test_the_function_is_still_a_function() -> None:
    @tool
    def double(x: int) -> int:
        """Double."""
        return 2 * x

    assert double(4) == 8


async def test_sync_functions_do_not_block_the_loop() -> None:
    started, may_end = threading.Event(), threading.Event()

    @tool(name="wait", description="Wait.")
    def waits() -> str:
        started.set()
        assert may_end.wait(30)
        return threading.current_thread().name

    running = asyncio.create_task(run(waits, {}))
    await asyncio.to_thread(started.wait)
    may_end.set()
    assert (await running).response.text == "'wait'"


async def test_async_functions_run_in_the_loop() -> None:
    @tool
    async def where() -> str:
        """Where."""
        return threading.current_thread().name

    assert (await run(where, {})).response.text == "MainThread"


@pytest.mark.parametrize(
    ("returned", "text", "reward", "metrics"),
    [
        ("plain", "plain", 0.0, {}),
        (None, "Done.", 0.0, {}),
        (5, "5", 0.0, {}),
        ({"a": "é"}, '{"a": "é"}', 0.0, {}),
        ([Place(name="x")], '[{"name": "x", "zone": 0}]', 0.0, {}),
        (Place(name="x"), '{"name":"x","zone":0}', 0.0, {}),
        ({1}, "[1]", 0.0, {}),
        (ToolResponse(text="r"), "r", 0.0, {}),
        (("t",), "t", 0.0, {}),
        (("t", 0.5), "t", 0.5, {}),
        (("t", None, {"m": 1}), "t", 0.0, {"m": 1}),
    ],
)
def test_what_a_function_may_return(returned: Any, text: str, reward: float, metrics: dict[str, Any]) -> None:
    response, got_reward, got_metrics = as_tool_return(returned)
    assert (response.text, got_reward, got_metrics) == (text, reward, metrics)


@pytest.mark.parametrize("returned", [(), (1, "not a reward"), (1, 2, {}, 4)])
def test_other_tuples_are_a_fault_of_ours(returned: Any) -> None:
    with pytest.raises(InfraError, match="is not"):
        as_tool_return(returned)


async def test_wrong_arguments_without_dispatch_are_told() -> None:
    with pytest.raises(ToolError, match=r"place\.name: Field required.*knd: Extra.*did you mean 'kind'") as error:
        await visit.execute("i", {"place": {}, "kind": "long", "knd": 1})
    assert error.value.kind is ErrorKind.ARGUMENTS


def raiser(error: BaseException) -> FunctionTool:
    @tool(name="fails", description="Fails.")
    def fails() -> str:
        raise error

    return fails


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ToolError("not like that", ErrorKind.USER_CODE), ErrorKind.USER_CODE),
        (ValueError("a bug"), ErrorKind.INFRA),
        (SystemExit(3), ErrorKind.INFRA),
        (StopIteration(), ErrorKind.INFRA),
    ],
)
async def test_a_function_that_raises_costs_its_call(error: BaseException, kind: ErrorKind) -> None:
    assert (await run(raiser(error), {})).record.error_kind is kind


async def test_functions_that_hang_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_threads, "MAX_ABANDONED", 2)
    may_end = threading.Event()

    @tool(name="hangs", description="Hangs.")
    def hangs() -> None:
        may_end.wait(60)

    try:
        errors = [(await run(hangs, {}, call_timeout_s=0.05)).record.error for _ in range(3)]
    finally:
        may_end.set()
    assert errors == ["no answer within 0.05 s"] * 2 + ["2 earlier calls of 'hangs' still hang"]


def no_hint(a) -> None:  # type: ignore[no-untyped-def]
    """X."""


def variadic(*a: int) -> None:
    """X."""


def no_docstring(a: int) -> None:
    pass


def no_json(a: Callable[[], int]) -> None:
    """X."""


class Node(BaseModel):
    inner: Node | None = None


def recursive(a: Node) -> None:
    """X."""


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (no_hint, "parameter 'a' has no type hint"),
        (variadic, "parameter 'a' cannot be given by name"),
        (no_docstring, "no docstring"),
        (no_json, "no JSON schema"),
        (recursive, "'Node' holds itself"),
    ],
)
def test_a_function_that_says_too_little_is_refused(function: Callable[..., Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as error:
        tool(function)
    assert function.__name__ in str(error.value)


def test_constraints_and_unions_reach_the_schema() -> None:
    @tool
    def f(a: Annotated[int, Field(ge=1, description="at least one")], b: int | str = 1) -> None:
        """X."""

    properties = f.tool_schema.function.parameters.model_dump(exclude_none=True)["properties"]
    assert properties["a"] == {"type": "integer", "minimum": 1, "description": "at least one"}
    assert properties["b"] == {"type": ["integer", "string"], "default": 1}


def test_a_function_can_be_named_in_a_native_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "native_functions.py").write_text("def f(x: int) -> int:\n    '''Same.'''\n    return x\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert FunctionTool({"type": "native", "function": "native_functions.f"}).name == "f"
    with pytest.raises(ConfigError, match="has no class or function 'dedentt'; did you mean 'dedent'"):
        FunctionTool({"function": "textwrap.dedentt"})


async def test_many_sync_calls_run_side_by_side() -> None:
    together = threading.Barrier(20)

    @tool(name="meet", description="Meet.")
    def meet() -> None:
        together.wait(30)

    started = time.monotonic()
    answers = await asyncio.gather(*(run(meet, {}) for _ in range(20)))
    assert all(answer.record.error_kind is None for answer in answers), time.monotonic() - started


@pytest.mark.parametrize("text", ["http://ann:words@example.org", "abc"])
async def test_a_model_sees_what_it_wrote_also_where_it_looks_like_a_secret(text: str) -> None:
    @tool
    def decode(token: int) -> str:
        """Decode a token.

        Args:
            token: its number.
        """
        return str(token)

    with pytest.raises(ToolError, match=f"token: .* .got '{text}'."):
        await decode.execute("one", {"token": text})
