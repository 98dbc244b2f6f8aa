"""Stateful tools on real sessions: what stays between calls, what is undone, and when the session itself goes."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from rollbox.schemas.errors import ErrorKind
from rollbox.schemas.tool import ToolCall
from rollbox.tools.bash import BashTool
from rollbox.tools.dispatch import Answer, ToolBox
from rollbox.tools.python_executor import PythonExecutorTool
from rollbox.tools.sandbox_tool import SandboxTool

from ..sandbox.server_process import serving

Make = Callable[..., SandboxTool]


@pytest.fixture
async def make() -> AsyncIterator[Make]:
    made: list[SandboxTool] = []

    def build(kind: type[SandboxTool] = PythonExecutorTool, **config: Any) -> SandboxTool:
        made.append(kind({"stateful": True, "timeout_sec": 10, "memory_mb": 512, **config}))
        return made[-1]

    yield build
    for tool in made:
        await tool.aclose()


async def run(tool: SandboxTool, *texts: str, files: dict[str, str] | None = None) -> list[Answer]:
    """The answers to the calls of one trajectory."""
    parameter = tool.tool_schema.function.parameters.required[0]
    kwargs = {tool.name: {"create_kwargs": {"files": files or {}}}}
    async with ToolBox({tool.name: tool}).trajectory("t", kwargs) as session:
        return [
            await session.call(ToolCall(name=tool.name, arguments={parameter: text}), turn, 0)
            for turn, text in enumerate(texts)
        ]


def said(answers: list[Answer]) -> list[str | None]:
    return [answer.response.text for answer in answers]


async def test_variables_and_files_stay_and_trajectories_are_apart(make: Make) -> None:
    tool = make()
    given = {"given.txt": base64.b64encode(b"given").decode()}
    show = "print(x + 1, open('out').read(), open('given.txt').read())"
    first, other = await asyncio.gather(
        run(tool, "x = 41\nopen('out', 'w').write('kept')", show, files=given),
        run(tool, "y = 5", "print(y, 'x' in globals())"),
    )
    assert said(first)[1] == "42 kept given"
    assert said(other)[1] == "5 False"


async def test_an_error_shows_its_own_lines_and_keeps_what_was_done(make: Make) -> None:
    answers = await run(make(), "x = 1\nimport json\njson.loads('x')", "print(x)")
    text = answers[0].response.text or ""
    assert 'File "<cell 1>", line 3' in text
    assert "json/decoder.py" not in text
    assert answers[0].record.error_kind is ErrorKind.USER_CODE
    assert said(answers)[1] == "1"


async def test_s06_a_call_that_runs_out_of_time_is_undone(make: Make, cases: dict[str, Any]) -> None:
    case = cases["S06"]["input"]
    answers = await run(make(timeout_sec=case["timeout_s"]), *case["calls"])
    assert answers[1].record.error_kind is ErrorKind.TIMEOUT
    assert "the session is as it was before the cell" in (said(answers)[1] or "")
    assert said(answers)[2] == "42"


async def test_the_last_expression_is_shown_only_when_asked_for(make: Make) -> None:
    assert said(await run(make(echo_last_expression=True), "6 * 7")) == ["42"]
    assert said(await run(make(), "6 * 7")) == ["(The program printed nothing. Use print() to see a value.)"]


async def test_rewards_are_shaped_by_cells_too(make: Make) -> None:
    answers = await run(make(error_penalty=0.5, first_success_bonus=1.0), "1/0", "print(1)", "print(2)")
    assert [answer.record.tool_reward for answer in answers] == [-0.5, 1.0, 0.0]


async def test_parallel_calls_share_one_session(make: Make) -> None:
    tool = make()
    async with ToolBox({"python": tool}).trajectory("t") as session:
        await asyncio.gather(
            *(session.call(ToolCall(name="python", arguments={"code": f"v{i} = {i}"}), 0, i) for i in range(5))
        )
        total = ToolCall(name="python", arguments={"code": "print(v0 + v1 + v2 + v3 + v4)"})
        assert (await session.call(total, 1, 0)).response.text == "10"


async def test_sessions_end_with_their_trajectory() -> None:
    with serving("--slots", "2") as server:
        tool = PythonExecutorTool({"stateful": True, "sandbox_url": server.url})
        await asyncio.gather(*(run(tool, "x = 1") for _ in range(3)))
        sandbox = await tool._sandbox()
        assert (await sandbox.info())["sessions"]["live"] == 0  # type: ignore[union-attr]
        await tool.aclose()


async def test_a_lost_session_is_our_fault_and_the_next_call_is_told(make: Make) -> None:
    tool = make()
    async with ToolBox({"python": tool}).trajectory("t") as session:

        async def call(code: str) -> Answer:
            return await session.call(ToolCall(name="python", arguments={"code": code}), 0, 0)

        await call("x = 1")
        [state] = tool._states.values()
        assert state.session is not None
        await state.session.close()
        lost = await call("print(x)")
        assert lost.record.error_kind in (ErrorKind.INFRA, ErrorKind.USER_CODE)
        after = await call("print('x' in globals())")
        assert after.response.text == ("False\n(The session was lost: variables and files of earlier calls are gone.)")
        assert (await call("print(2)")).response.text == "2"


async def test_the_schema_says_that_things_stay(make: Make) -> None:
    assert "stay for the next call" in make().tool_schema.function.description
    assert "Nothing is kept" in PythonExecutorTool().tool_schema.function.description


async def test_a_shell_keeps_what_a_shell_keeps(make: Make) -> None:
    answers = await run(
        make(BashTool),
        "export A=1; b='two words'; f() { echo called $1; }; mkdir -p d/e; cd d/e; arr=(1 '2 3')",
        "echo \"$A $b ${arr[1]}\"; pwd; f x; bash -c 'echo child $A'",
        "exit 3",
        "pwd; false",
        "echo $A; cat <<'E'\n$no 'quotes' \"at\" all\\n\nE",
    )
    texts = said(answers)
    assert texts[0] == "(The command printed nothing.)"
    assert texts[1] == "1 two words 2 3\n/workspace/d/e\ncalled x\nchild 1"
    assert texts[2] == "The command ended with exit code 3."
    assert texts[3] == "/workspace/d/e\nThe command ended with exit code 1."
    assert texts[4] == "1\n$no 'quotes' \"at\" all\\n"


async def test_a_command_that_runs_out_of_time_leaves_the_shell_as_it_was(make: Make) -> None:
    answers = await run(make(BashTool, timeout_sec=1), "A=1", "A=2; sleep 60", "echo $A")
    assert answers[1].record.error_kind is ErrorKind.TIMEOUT
    assert said(answers)[2] == "1"
