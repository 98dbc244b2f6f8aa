"""Several sandbox servers as one: balance, ejection and return. The servers are real, and really killed."""

from __future__ import annotations

import asyncio
import time

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from rollbox.schemas.errors import ConfigError, ErrorKind, OverloadedError, SandboxError, ToolError
from rollbox.schemas.run import RunRequest, RunResult, RunStatus
from rollbox.schemas.tool import ToolCall
from rollbox.tools import sandbox_fleet
from rollbox.tools.dispatch import ToolBox
from rollbox.tools.python_executor import PythonExecutorTool
from rollbox.tools.sandbox_fleet import SandboxFleet

from ..sandbox.server_process import serving


class ScriptedServer:
    """Speaks `/v1/run`; `status` says how it answers, `may_answer` when."""

    def __init__(self) -> None:
        self.status = 200
        self.calls = 0
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        app = web.Application()
        app.router.add_post("/v1/run", self._run)
        self.server = TestServer(app)

    async def _run(self, request: web.Request) -> web.Response:
        self.calls += 1
        await self.may_answer.wait()
        result = RunResult(status=RunStatus.OK, stdout=str(self.server.port))
        return web.Response(status=self.status, text=result.model_dump_json() if self.status == 200 else "broken")

    @property
    def url(self) -> str:
        return str(self.server.make_url("")).rstrip("/")


@pytest.fixture
async def servers() -> list[ScriptedServer]:  # type: ignore[misc]
    made = [ScriptedServer() for _ in range(3)]
    for server in made:
        await server.server.start_server()
    yield made  # type: ignore[misc]
    for server in made:
        server.may_answer.set()
        await server.server.close()


REQUEST = RunRequest(code="print(1)")


async def _until_one_rests(fleet: SandboxFleet) -> list[tuple[RunResult, int]]:
    """Which of the idle servers is asked is left to chance: ask until the sick one was."""
    outcomes = []
    while not fleet.resting():
        outcomes.append(await fleet.run_counted(REQUEST))
    return outcomes


async def test_calls_go_to_the_least_busy(servers: list[ScriptedServer]) -> None:
    for server in servers:
        server.may_answer.clear()
    async with SandboxFleet([server.url for server in servers]) as fleet:
        running = [asyncio.create_task(fleet.run_counted(REQUEST)) for _ in range(30)]
        while sum(server.calls for server in servers) < 30:  # noqa: ASYNC110 - counted by the servers themselves
            await asyncio.sleep(0.001)
        assert [server.calls for server in servers] == [10, 10, 10]
        for server in servers:
            server.may_answer.set()
        await asyncio.gather(*running)


@pytest.mark.parametrize("status", [500, 429])
async def test_a_sick_or_full_server_is_left_out_and_tried_again(
    servers: list[ScriptedServer], monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    servers[0].status = status
    async with SandboxFleet([server.url for server in servers]) as fleet:
        outcomes = await _until_one_rests(fleet)
        outcomes += [await fleet.run_counted(REQUEST) for _ in range(20)]
        assert all(result.status is RunStatus.OK for result, _ in outcomes)
        assert servers[0].calls == 1
        assert fleet.resting() == [servers[0].url]
        assert sum(retries for _, retries in outcomes) == 1
        servers[0].status = 200
        now = time.monotonic()
        monkeypatch.setattr(sandbox_fleet, "monotonic", lambda: now + 100)
        for _ in range(20):
            await fleet.run_counted(REQUEST)
        assert servers[0].calls > 1
        assert fleet.resting() == []


async def test_while_a_sick_server_is_tried_the_others_go_on(
    servers: list[ScriptedServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    servers[0].status = 500
    async with SandboxFleet([server.url for server in servers]) as fleet:
        await _until_one_rests(fleet)
        before = servers[0].calls
        servers[0].may_answer.clear()
        now = time.monotonic()
        monkeypatch.setattr(sandbox_fleet, "monotonic", lambda: now + 100)
        trial = asyncio.create_task(fleet.run_counted(REQUEST))
        while servers[0].calls == before:  # noqa: ASYNC110 - counted by the server itself
            await asyncio.sleep(0.001)
        for _ in range(10):
            await fleet.run_counted(REQUEST)
        assert servers[0].calls == before + 1
        servers[0].may_answer.set()
        await trial


async def test_a_fleet_that_is_down_altogether_is_an_infra_fault(
    servers: list[ScriptedServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox_fleet, "_PAUSE_S", 0.001)
    for server in servers:
        server.status = 500
    async with SandboxFleet([server.url for server in servers]) as fleet:
        with pytest.raises(SandboxError, match="answered 500") as error:
            await fleet.run_counted(REQUEST)
        assert error.value.retries == 8
        assert [server.calls for server in servers] == [3, 3, 3]
        servers[1].status = 200
        assert (await fleet.run_counted(REQUEST))[0].stdout == str(servers[1].server.port)


async def test_a_fleet_that_is_full_is_waited_for_until_the_deadline(servers: list[ScriptedServer]) -> None:
    for server in servers:
        server.status = 429
    async with SandboxFleet([server.url for server in servers]) as fleet:
        with pytest.raises(OverloadedError) as error:
            await fleet.run_counted(REQUEST, deadline_s=0.5)
        assert error.value.retries >= 2
        waiting = asyncio.create_task(fleet.run_counted(REQUEST, deadline_s=60))
        before = sum(server.calls for server in servers)
        while sum(server.calls for server in servers) == before:  # noqa: ASYNC110 - counted by the servers themselves
            await asyncio.sleep(0.001)
        servers[2].status = 200
        assert (await waiting)[0].stdout == str(servers[2].server.port)


async def test_sessions_that_one_server_has_no_room_for_are_another_ones() -> None:
    with (
        serving("--slots", "1", "--max-sessions", "1") as first,
        serving("--slots", "1", "--max-sessions", "1") as second,
    ):
        async with SandboxFleet([first.url, second.url]) as fleet:
            opened = [await fleet.create_session(deadline_s=60) for _ in range(2)]
            assert {session._sandbox.url for session in opened} == {first.url, second.url}
            for session in opened:
                await session.close()


async def test_a_refused_request_is_nobodys_sickness(servers: list[ScriptedServer]) -> None:
    for server in servers:
        server.status = 422
    async with SandboxFleet([server.url for server in servers]) as fleet:
        with pytest.raises(ToolError) as error:
            await fleet.run_counted(REQUEST)
        assert error.value.kind is ErrorKind.ARGUMENTS
        assert fleet.resting() == []


def test_the_same_server_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match="twice"):
        SandboxFleet(["http://a", "http://a"])


async def test_a_server_killed_under_load_costs_no_call() -> None:
    with serving("--slots", "2") as first, serving("--slots", "2") as second:
        tool = PythonExecutorTool({"sandbox_url": [first.url, second.url], "timeout_sec": 30})
        box = ToolBox({"python": tool})

        async def call(i: int) -> str | None:
            async with box.trajectory(str(i)) as session:
                arguments = {"code": f"import time\ntime.sleep(0.05)\nprint({i})"}
                return (await session.call(ToolCall(name="python", arguments=arguments), 0, 0)).response.text

        running = [asyncio.create_task(call(i)) for i in range(40)]
        await running[0]
        first.process.kill()
        assert await asyncio.gather(*running) == [str(i) for i in range(40)]
        await tool.aclose()
