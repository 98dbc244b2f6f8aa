"""PythonExecutorTool with a real sandbox server: what the model reads, and what the record says."""

from __future__ import annotations

import asyncio
import base64
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from rollbox.sandbox.client import Sandbox
from rollbox.schemas.errors import ConfigError, ErrorKind
from rollbox.schemas.run import CompileResult, RunResult, RunStatus
from rollbox.schemas.tool import ToolCall
from rollbox.tools import python_executor, sandbox_connection
from rollbox.tools.dispatch import Answer, DispatchLimits, ToolBox
from rollbox.tools.python_executor import PythonExecutorConfig, PythonExecutorTool, describe

from ..sandbox.conformance.known_answers import ANSWERS

NO_OUTPUT = "(The program printed nothing. Use print() to see a value.)"


@pytest.fixture
async def tool() -> AsyncIterator[PythonExecutorTool]:
    made = PythonExecutorTool({"timeout_sec": 5, "memory_mb": 256})
    yield made
    await made.aclose()


async def run(tool: PythonExecutorTool, code: Any, **limits: Any) -> Answer:
    tools = {tool.name: tool}
    async with ToolBox(tools, DispatchLimits(**limits)).trajectory("t") as session:
        return await session.call(ToolCall(name="python", arguments={"code": code}), 0, 0)


def test_what_the_embedded_server_lacks_is_said_when_the_tool_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    PythonExecutorTool({"sandbox_url": "http://127.0.0.1:9"})
    with pytest.raises(ConfigError, match=r"embedded sandbox needs uvloop: pip install 'rollbox\[server\]'"):
        PythonExecutorTool()
    with pytest.raises(ConfigError, match="needs uvloop"):
        Sandbox.embedded()


async def test_output_and_record(tool: PythonExecutorTool) -> None:
    answer = await run(tool, "print(6 * 7)")
    assert answer.response.text == "42"
    record = answer.record
    assert (record.error_kind, record.executed, record.truncated) == (None, True, False)
    assert record.run_ms > 0
    assert record.metrics["cpu_ms"] > 0


async def test_fifty_known_answers_at_once(tool: PythonExecutorTool) -> None:
    programs = list(ANSWERS.values())
    assert len(programs) >= 50
    answers = await asyncio.gather(*(run(tool, program) for program, _ in programs))
    for (program, expected), answer in zip(programs, answers, strict=True):
        assert answer.record.error_kind is None, program
        assert answer.response.text == (expected.rstrip() or NO_OUTPUT), program


async def test_an_error_shows_its_own_lines(tool: PythonExecutorTool) -> None:
    answer = await run(tool, "print('before')\nimport json\njson.loads('x')")
    assert answer.record.error_kind is ErrorKind.USER_CODE
    assert answer.record.error == "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)"
    text = answer.response.text or ""
    assert text.startswith("before\nTraceback (most recent call last):")
    assert 'File "main.py", line 3' in text
    assert "json/decoder.py" not in text
    assert "/workspace" not in text


@pytest.mark.parametrize(
    ("code", "kind", "said"),
    [
        ("while True: pass", ErrorKind.TIMEOUT, "Timed out after 0.5 s."),
        ("x = bytearray(10**10)", ErrorKind.MEMORY, "Out of memory: the limit is 256 MiB."),
        ("import os; os._exit(7)", ErrorKind.USER_CODE, "The program ended with exit code 7."),
        ("import os; os.kill(os.getpid(), 9)", ErrorKind.USER_CODE, "ended by signal 9"),
        ("int(input())", ErrorKind.USER_CODE, "Hint: "),
        ("await f()", ErrorKind.USER_CODE, "Hint: "),
    ],
)
async def test_each_way_to_fail(code: str, kind: ErrorKind, said: str) -> None:
    tool = PythonExecutorTool({"timeout_sec": 0.5 if kind is ErrorKind.TIMEOUT else 10, "memory_mb": 256})
    answer = await run(tool, code)
    await tool.aclose()
    assert answer.record.error_kind is kind
    assert said in (answer.response.text or "")


async def test_no_output_is_said(tool: PythonExecutorTool) -> None:
    assert (await run(tool, "x = 1")).response.text == NO_OUTPUT


async def test_a_fence_is_taken_off(tool: PythonExecutorTool) -> None:
    assert (await run(tool, "```python\nprint(1)\n```")).response.text == "1"


async def test_s01_large_output_keeps_its_end(tool: PythonExecutorTool, cases: dict[str, Any]) -> None:
    answer = await run(tool, cases["S01"]["input"])
    assert answer.record.error_kind is None
    assert answer.record.truncated
    assert (answer.response.text or "").endswith("END")


@pytest.mark.parametrize("code", ["", "   ", "print('\ud800')"])
async def test_code_that_is_none_is_the_models_mistake(tool: PythonExecutorTool, code: str) -> None:
    answer = await run(tool, code)
    assert answer.record.error_kind is ErrorKind.ARGUMENTS


async def test_a_sandbox_that_is_down_is_not_the_models_mistake() -> None:
    tool = PythonExecutorTool({"sandbox_url": "http://127.0.0.1:9"})
    answer = await run(tool, "print(1)", call_timeout_s=3)
    await tool.aclose()
    assert answer.record.error_kind is ErrorKind.INFRA
    assert answer.response.text == "The tool 'python' is unavailable at the moment."


async def test_tools_of_one_process_share_the_embedded_server() -> None:
    first, second = PythonExecutorTool({}), PythonExecutorTool({})
    await asyncio.gather(run(first, "print(1)"), run(second, "print(2)"))
    assert len(sandbox_connection._open) == 1
    await first.aclose()
    assert (await run(second, "print(3)")).response.text == "3"
    await second.aclose()
    assert sandbox_connection._open == {}


def test_every_status_has_an_error_kind_and_words() -> None:
    config = PythonExecutorConfig()
    compiler = CompileResult(status=RunStatus.ERROR, exit_code=1, stderr="main.c:1: error: nothing here\n")
    for status in set(RunStatus) - {RunStatus.OK}:
        result = RunResult(status=status, exit_code=1, compile=compiler)
        assert python_executor.error_kind(result) in ErrorKind
        assert describe(result, config)
    result = RunResult(status=RunStatus.COMPILE_ERROR, compile=compiler)
    assert python_executor.error_kind(result) == "user_code"
    assert describe(result, config) == "The program could not be compiled.\nmain.c:1: error: nothing here"


async def trajectory(tool: PythonExecutorTool, *programs: str, files: dict[str, str] | None = None) -> list[Answer]:
    """The answers to several programs of one trajectory."""
    kwargs = {"python": {"create_kwargs": {"files": files or {}}}}
    async with ToolBox({"python": tool}).trajectory("t", kwargs) as session:
        return [
            await session.call(ToolCall(name="python", arguments={"code": code}), turn, 0)
            for turn, code in enumerate(programs)
        ]


@pytest.fixture
async def make_tool() -> AsyncIterator[Callable[..., PythonExecutorTool]]:
    made: list[PythonExecutorTool] = []

    def make(**config: Any) -> PythonExecutorTool:
        made.append(PythonExecutorTool({"timeout_sec": 10, "memory_mb": 512, **config}))
        return made[-1]

    yield make
    for tool in made:
        await tool.aclose()


Make = Callable[..., PythonExecutorTool]


async def test_the_last_expression_is_shown_when_asked_for(make_tool: Make) -> None:
    tool = make_tool(echo_last_expression=True)
    assert (await run(tool, "print('a')\n6 * 7")).response.text == "a\n42"
    assert (await run(tool, "x = 1")).response.text == NO_OUTPUT
    assert (await run(make_tool(), "6 * 7")).response.text == NO_OUTPUT


async def test_figures_are_images(make_tool: Make) -> None:
    tool = make_tool(figures=True, timeout_sec=60, memory_mb=2048)
    answer = await run(tool, "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()")
    assert answer.record.error_kind is None
    assert answer.response.text == "(The program printed nothing, and drew the figure below.)"
    assert answer.response.image is not None
    [image] = answer.response.image
    assert (image.mode, min(image.size) > 100) == ("RGB", True)


async def test_files_are_kept_for_the_trajectory_and_not_beyond(make_tool: Make) -> None:
    tool = make_tool(keep_files=True)
    given = {"given.txt": base64.b64encode(b"from the data set").decode()}
    answers = await trajectory(
        tool,
        "print(open('given.txt').read())\nopen('out.csv', 'w').write('1,2')",
        "print(open('out.csv').read(), open('given.txt').read())\nimport os\nos.remove('out.csv')",
        "import os\nprint(sorted(os.listdir()))",
        files=given,
    )
    texts = [answer.response.text for answer in answers]
    assert texts[:2] == ["from the data set", "1,2 from the data set"]
    assert "out.csv" not in (texts[2] or "")
    assert "given.txt" in (texts[2] or "")
    [other] = await trajectory(tool, "import os\nprint(os.path.exists('given.txt'))")
    assert other.response.text == "False"


async def test_files_that_are_too_large_are_said_to_be_lost(make_tool: Make) -> None:
    tool = make_tool(keep_files=True, keep_files_mb=1)
    first, second = await trajectory(
        tool, "open('big.bin', 'wb').write(bytes(2**21))", "import os\nprint(os.path.exists('big.bin'))"
    )
    assert "more than 1 MiB, and were not kept" in (first.response.text or "")
    assert second.response.text == "False"


async def test_files_of_the_data_set_that_are_none_are_a_fault_of_ours(make_tool: Make) -> None:
    kwargs = {"python": {"create_kwargs": {"files": ["a"]}}}
    async with ToolBox({"python": make_tool()}).trajectory("t", kwargs) as session:
        answer = await session.call(ToolCall(name="python", arguments={"code": "1"}), 0, 0)
    assert answer.record.error_kind is ErrorKind.INFRA
    assert "files must map paths to base64 texts" in (answer.record.error or "")


async def test_rewards_are_shaped(make_tool: Make) -> None:
    tool = make_tool(error_penalty=0.25, first_success_bonus=1.0)
    answers = await trajectory(tool, "1 / 0", "print(1)", "print(2)", "1 / 0")
    assert [answer.record.tool_reward for answer in answers] == [-0.25, 1.0, 0.0, -0.25]


class LongOutputsCost(PythonExecutorTool):
    def step_reward(self, result: RunResult, first_success: bool) -> float:
        return super().step_reward(result, first_success) - result.stdout_bytes / 100


async def test_a_subclass_shapes_rewards_otherwise() -> None:
    tool = LongOutputsCost({"first_success_bonus": 1.0})
    answers = await trajectory(tool, "print('x' * 49)")
    await tool.aclose()
    assert answers[0].record.tool_reward == 0.5


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"sandbox_url": []}, "the list of addresses is empty"),
        ({"sandbox_url": ["http://a", "b"]}, "'b' is not an address"),
        ({"sandbox_url": ["http://a", "http://a/"]}, "is there twice"),
        ({"error_penalty": -1}, "error_penalty"),
        ({"keep_files_mb": 64}, "keep_files_mb"),
    ],
)
def test_wrong_settings_are_named(config: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        PythonExecutorTool(config)
