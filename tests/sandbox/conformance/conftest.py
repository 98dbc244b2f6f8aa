"""What a run must do, however it is asked for: the same checks over pools, the HTTP client, /run_code, a container.

A test that asks for `run` or `seen` here is run once for each way. `beyond_run_code` marks those that need more than
that wire can say, `zygotes_only` those that need what `--pool process` does not do.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from typing import Any

import aiohttp
import pytest

from rollbox.sandbox.client import Sandbox
from rollbox.sandbox.pool import Pool
from rollbox.sandbox.process_pool import ProcessPool
from rollbox.sandbox.zygote_pool import ZygotePool
from rollbox.schemas.run import RunLimits, RunRequest, RunResult, RunStatus

from ..conftest import RunCode
from ..server_process import ServerProcess
from ..targets import ADDRESS, CONTAINER, Target, opened, target_names

CLIENT, RUN_CODE, ZYGOTES, PROCESSES = "client", "run_code", "zygote pool", "process pool"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "way" not in metafunc.fixturenames:
        return
    marks = {mark.name for mark in metafunc.definition.iter_markers()}
    own = [CLIENT, ZYGOTES]
    own += [] if "beyond_run_code" in marks else [RUN_CODE]
    own += [] if "zygotes_only" in marks else [PROCESSES]
    metafunc.parametrize("way", target_names(metafunc.config, *own), scope="session")


class PoolThread:
    """A pool in an event loop of its own, for all tests: each test has another loop, and zygotes take long to start."""

    def __init__(self, pool: type[ZygotePool] | type[ProcessPool]) -> None:
        self._kind = pool
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._stack = AsyncExitStack()
        self._pool: Pool | None = None

    def __enter__(self) -> PoolThread:
        self._thread.start()
        self._pool = asyncio.run_coroutine_threadsafe(self._open(), self._loop).result()
        return self

    async def _open(self) -> Pool:
        return await self._stack.enter_async_context(self._kind(slots=4, queue=1024))

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stack.aclose(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def run(self, request: RunRequest) -> RunResult:
        assert self._pool is not None
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._pool.run(request), self._loop))


@pytest.fixture(scope="session")
def zygote_pool() -> Iterator[PoolThread]:
    with PoolThread(ZygotePool) as pool:
        yield pool


@pytest.fixture(scope="session")
def process_pool() -> Iterator[PoolThread]:
    with PoolThread(ProcessPool) as pool:
        yield pool


@pytest.fixture
def sandbox(way: str, request: pytest.FixtureRequest) -> Any:
    """Something with `run`, for tests that make their requests themselves."""
    return request.getfixturevalue({ZYGOTES: "zygote_pool", PROCESSES: "process_pool"}.get(way, "http_way"))


@pytest.fixture
async def http_way(way: str, request: pytest.FixtureRequest) -> AsyncIterator[Any]:
    if way in (CONTAINER, ADDRESS):
        with opened(way, request) as target:
            async with _connected(target) as client:
                yield client
        return
    server: ServerProcess = request.getfixturevalue("server")
    if way == RUN_CODE:
        async with aiohttp.ClientSession(server.url) as http:
            yield RunCodeClient(http)
        return
    async with _connected(Target(server.url, server.port)) as client:
        yield client


def _connected(target: Target) -> Sandbox:
    return Sandbox.connect(target.url, token=target.token)


class RunCodeClient:
    """Runs by SandboxFusion's wire, as far as that can say what is asked."""

    def __init__(self, http: aiohttp.ClientSession) -> None:
        self._http = http

    async def run(self, request: RunRequest) -> RunResult:
        body = _as_run_code(request)
        async with self._http.post("/run_code", json=body) as response:
            assert response.status == 200, await response.text()
            return _as_result(await response.json())


def _as_run_code(request: RunRequest) -> dict[str, Any]:
    asked = request.model_dump(exclude_defaults=True)
    limits = asked.pop("limits", {})
    names = {"wall_s": "run_timeout", "memory_mb": "memory_limit_MB"}
    assert limits.keys() <= names.keys(), f"mark this test `beyond_run_code`: {limits}"
    assert asked.keys() <= {"code", "stdin", "files", "fetch_files"}, f"mark this test `beyond_run_code`: {asked}"
    return {"language": "python", **asked, **{names[name]: value for name, value in limits.items()}}


def _as_result(answer: dict[str, Any]) -> RunResult:
    ran, message = answer["run_result"], answer["message"]
    code = ran["return_code"]
    status = RunStatus.OK if answer["status"] == "Success" else RunStatus.ERROR
    if ran["status"] == "TimeLimitExceeded":
        status = RunStatus.TIMEOUT
    elif message in (RunStatus.MEMORY, RunStatus.OUTPUT_LIMIT):
        status = RunStatus(message)
    return RunResult(
        status=status,
        exit_code=code if code is not None and code >= 0 else None,
        signal=-code if code is not None and code < 0 else None,
        stdout=ran["stdout"],
        stderr=ran["stderr"],
        hint=message or None,
        files=answer["files"],
        run_ms=ran["execution_time"] * 1000,
    )


@pytest.fixture
def run(sandbox: Any) -> RunCode:
    """Run code; keywords are limits or request fields."""

    async def run_code(code: str, **fields: Any) -> RunResult:
        limits = {name: fields.pop(name) for name in list(fields) if name in RunLimits.model_fields}
        result: RunResult = await sandbox.run(RunRequest(code=code, limits=RunLimits(**limits), **fields))
        return result

    return run_code
