"""BashTool with a real sandbox server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from rollbox.schemas.errors import ErrorKind
from rollbox.schemas.tool import ToolCall
from rollbox.tools.bash import NO_OUTPUT, BashTool
from rollbox.tools.dispatch import Answer, ToolBox


@pytest.fixture
async def tool() -> AsyncIterator[BashTool]:
    made = BashTool({"timeout_sec": 5, "memory_mb": 256, "error_penalty": 0.5})
    yield made
    await made.aclose()


async def run(tool: BashTool, command: Any) -> Answer:
    async with ToolBox({"bash": tool}).trajectory("t") as session:
        return await session.call(ToolCall(name="bash", arguments={"command": command}), 0, 0)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("echo $((6 * 7))", "42"),
        ("printf 'b\\na\\n' | sort | head -n 1", "a"),
        ("for i in 1 2 3; do echo $i; done > f; wc -l < f", "3"),
        ("```bash\necho fenced\n```", "fenced"),
        ("true", NO_OUTPUT),
        ("echo out; echo err >&2", "out\nerr"),
    ],
)
async def test_commands(tool: BashTool, command: str, expected: str) -> None:
    answer = await run(tool, command)
    assert (answer.response.text, answer.record.error_kind) == (expected, None)


@pytest.mark.parametrize(
    ("command", "kind", "said"),
    [
        ("echo before; ls /not/there", ErrorKind.USER_CODE, "The command ended with exit code 2."),
        ("kill -9 $$", ErrorKind.USER_CODE, "ended by signal 9"),
        ("while true; do :; done", ErrorKind.TIMEOUT, "Timed out after 5 s."),
        ("no-such-program", ErrorKind.USER_CODE, "command not found"),
        ("", ErrorKind.ARGUMENTS, "non-empty string"),
    ],
)
async def test_failures(tool: BashTool, command: str, kind: ErrorKind, said: str) -> None:
    answer = await run(tool, command)
    assert answer.record.error_kind is kind
    assert said in (answer.response.text or "")
    assert answer.record.tool_reward == (0.0 if kind is ErrorKind.ARGUMENTS else -0.5)
