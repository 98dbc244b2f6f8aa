"""One server for the tests that do not need their own."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest

from rollbox.sandbox.client import Sandbox
from rollbox.schemas.judge import JudgeLimits, JudgeRequest, JudgeResult
from rollbox.schemas.run import RunLimits, RunRequest, RunResult

from .server_process import ServerProcess, serving

RunCode = Callable[..., Awaitable[RunResult]]


@pytest.fixture(scope="session")
def server() -> Iterator[ServerProcess]:
    with serving("--slots", "4", env={"ROLLBOX_TEST_SECRET": "s3cret"}) as process:
        yield process


@pytest.fixture
async def sandbox(server: ServerProcess) -> AsyncIterator[Sandbox]:
    async with Sandbox.connect(server.url) as client:
        yield client


@pytest.fixture
def run(sandbox: Sandbox) -> RunCode:
    """Run code; keywords are limits or request fields."""

    async def run_code(code: str, **fields: Any) -> RunResult:
        limits = {name: fields.pop(name) for name in list(fields) if name in RunLimits.model_fields}
        return await sandbox.run(RunRequest(code=code, limits=RunLimits(**limits), **fields))

    return run_code


@pytest.fixture
def seen(run: RunCode) -> Callable[..., Awaitable[Any]]:
    """Run code that prints JSON, and return what it saw."""

    async def look(code: str, **fields: Any) -> Any:
        result = await run(code, **fields)
        assert result.status == "ok", result
        return json.loads(result.stdout)

    return look


Judged = Callable[..., Any]


@pytest.fixture
def judge(sandbox: Sandbox) -> Judged:
    """Judge a program; keywords are limits or fields of the request."""

    async def judged(code: str, tests: list[dict[str, Any]], **fields: Any) -> JudgeResult:
        limits = {name: fields.pop(name) for name in list(fields) if name in JudgeLimits.model_fields}
        data = {"code": code, "tests": tests, "limits": {"wall_s": 20, **limits}, **fields}
        return await sandbox.judge(JudgeRequest.model_validate(data))

    return judged
