"""The failure cases of kinds parser, search, config and runtime, run from the file; each by what it expects.

A case of these kinds without a check here is an error. The other kinds are checked beside what they are about.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer

from rollbox.retrieval.services import http_service
from rollbox.rollout.loop import RolloutLimits, RolloutLoop
from rollbox.rollout.parsers import get_parser
from rollbox.rollout.runner import InfraGuard
from rollbox.schemas.errors import ConfigError, ErrorKind, InfraError
from rollbox.schemas.generation import SamplingParams
from rollbox.schemas.tool import ToolCall, ToolSchema
from rollbox.schemas.trajectory import Sample, StopReason
from rollbox.tools.base import BaseTool
from rollbox.tools.calculator import CalculatorTool
from rollbox.tools.dispatch import Answer, DispatchLimits, ToolBox
from rollbox.tools.python_executor import PythonExecutorTool
from rollbox.tools.registry import load_tools
from rollbox.tools.search import SearchTool
from rollbox.tools.slots import Slots
from rollbox.training.reachable_tools import check_agent_loop

from ..sandbox.server_process import serving

CASES = {case["id"]: case for case in yaml.safe_load((Path(__file__).parent / "cases.yaml").read_text())}
KINDS = ("parser", "search", "config", "runtime")
OURS = [name for name, case in CASES.items() if case["kind"].split("/")[0] in KINDS]
CHECKS: dict[str, Callable[[Any, World], Awaitable[None]]] = {}
hermes = get_parser("hermes")


class World:
    """What the checks share: tools on a real sandbox, a scripted engine, a folder."""

    def __init__(self, folder: Path, scripted_engine: Any) -> None:
        self.folder = folder
        self.scripted_engine = scripted_engine
        self.python = PythonExecutorTool({"timeout_sec": 20})
        self.tools: dict[str, BaseTool] = {"python": self.python, "calculator": CalculatorTool()}

    async def run(self, calls: list[ToolCall], **limits: Any) -> list[Answer]:
        async with ToolBox(self.tools, DispatchLimits(**limits)).trajectory("t") as session:
            return [await session.call(call, 0, i) for i, call in enumerate(calls)]

    async def texts(self, text: str) -> list[str | None]:
        """What the tools answer to the calls of a turn."""
        return [answer.response.text for answer in await self.run(hermes.parse(text).calls)]

    async def roll(self, *script: str, **limits: Any) -> Any:
        engine = self.scripted_engine(list(script))
        loop = RolloutLoop(engine, self.tools, hermes, SamplingParams(max_tokens=256), RolloutLimits(**limits))
        return await loop.run(Sample(sample_id="s", data_source="x", messages=[{"role": "user", "content": "?"}]))


@pytest.fixture
async def world(tmp_path: Path, scripted_engine: Any, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setattr(http_service, "_FIRST_PAUSE_S", 0.001)
    made = World(tmp_path, scripted_engine)
    yield made
    await made.python.aclose()


def expects(name: str) -> Callable[[Any], Any]:
    def register(check: Any) -> Any:
        CHECKS[next(case for case in CASES if case.startswith(f"{name}-"))] = check
        return check

    return register


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", OURS)
async def test_case(name: str, world: World) -> None:
    await CHECKS[name](CASES[name]["input"], world)


def test_no_case_is_left_out() -> None:
    assert sorted(CHECKS) == sorted(OURS)


@expects("P01")
async def _(case: Any, world: World) -> None:
    [call] = hermes.parse(case["a"]).calls
    assert (call.arguments, call.repaired) == ({"query": "Euler's totient of 36"}, False)
    [call] = hermes.parse(case["b"]).calls
    assert (call.arguments, call.repaired) == ({"expression": "7 * 6", "exact": True}, True)


@expects("P02")
async def _(case: Any, world: World) -> None:
    [call] = hermes.parse(case).calls
    assert "</tool_call>" in call.arguments["code"]
    assert await world.texts(case) == ["12"]


@expects("P04")
async def _(case: Any, world: World) -> None:
    assert await world.texts(case) == ["243", "125"]
    trajectory = await world.roll(case, "done", max_calls_per_turn=1)
    assert len(trajectory.records) == 2
    assert [message["content"] for message in trajectory.messages if message["role"] == "tool"] == [
        "243",
        "Not run: at most 1 calls are run in one turn.",
    ]


@expects("P05")
async def _(case: Any, world: World) -> None:
    [call] = hermes.parse(case["a"]).calls
    assert call.repaired
    assert await world.texts(case["a"]) == ["1"]
    cut = await world.roll(case["b"], "done")
    assert "incomplete" in cut.messages[2]["content"]
    assert [record.executed for record in cut.records] == [False]
    assert (await world.roll(case["b"] + "…")).stop_reason is StopReason.TURN_TRUNCATED


@expects("P06")
async def _(case: Any, world: World) -> None:
    assert await world.texts(case) == ["12"]
    assert hermes.parse(case).draft_calls == 1


@expects("P08")
async def _(case: Any, world: World) -> None:
    written = world.folder / "pwned_by_parser"
    schema = {"function": {**case["schema"], "description": "Search."}}
    parser = get_parser("qwen3_coder", [ToolSchema.model_validate(schema)])
    [call] = parser.parse(case["text"].replace("/tmp/pwned_by_parser", str(written))).calls
    world.tools["search"] = SearchTool(tool_schema=schema)
    [answer] = await world.run([call])
    assert not written.exists()
    assert answer.record.error_kind is ErrorKind.ARGUMENTS
    assert "is not of type 'array'" in (answer.response.text or "")


@expects("Q01")
async def _(case: Any, world: World) -> None:
    async def reply(request: web.Request) -> web.StreamResponse:
        match request.path:
            case "/html":
                return web.Response(text="<h1>oops</h1>", status=500, content_type="text/html")
            case "/empty":
                return web.Response(text="")
        await asyncio.sleep(60)
        return web.Response()

    app = web.Application()
    app.router.add_post("/{kind}", reply)
    server = TestServer(app)
    await server.start_server()
    urls = {"HTTP 500": server.make_url("/html"), "connection": "http://127.0.0.1:9/x"}
    urls |= {"HTTP 200": server.make_url("/empty"), "no reply": server.make_url("/never")}
    for described in case["server_replies"]:
        [url] = [url for start, url in urls.items() if described.startswith(start)]
        tool = SearchTool({"retrieval_service_url": str(url), "timeout": 0.5})
        world.tools["search"] = tool
        started = time.monotonic()
        [answer] = await world.run([ToolCall(**case["call"])])
        assert time.monotonic() - started < 30, described
        assert answer.response.text == "The tool 'search' is unavailable at the moment."
        record = answer.record
        assert (record.error_kind, record.is_infra) == (ErrorKind.INFRA, True), described
        assert record.retries == (0 if described.startswith("no reply") else 3)
        assert record.run_ms > 0
        await tool.aclose()
    trajectory = await world.roll(
        '<tool_call>{"name": "search", "arguments": {"query_list": ["a"]}}</tool_call>', "I do not know."
    )
    assert (trajectory.stop_reason, trajectory.infra_failed) == (StopReason.ANSWERED, True)
    await world.tools["search"].aclose()
    await server.close()


@expects("C01")
async def _(case: Any, world: World) -> None:
    value = yaml.safe_load(case["yaml"])["sandbox"]["url"]
    file = world.folder / "tools.yaml"
    entry = {"class_name": "rollbox.tools.python_executor.PythonExecutorTool", "config": {"sandbox_url": value}}
    file.write_text(yaml.safe_dump({"tools": [entry]}))
    with pytest.raises(ConfigError, match=rf"tools\.0.*sandbox_url.*'{value}' is not an address.*curl"):
        load_tools(file)
    guard = InfraGuard()
    assert guard.max_rate < 0.5
    with pytest.raises(InfraError, match="10 of 16 trajectories failed"):
        guard.check(16, 10, "UnknownError")


@expects("X06")
async def _(case: Any, world: World) -> None:
    with pytest.raises(ConfigError, match=r"tools\.yaml.*1 of 1 rows would run 'single_turn_agent'"):
        check_agent_loop(case["rollout"], [case["dataset_row"]["agent_name"]])
    check_agent_loop(case["rollout"], ["tool_agent"])


@expects("R01")
async def _(case: Any, world: World) -> None:
    # A tenth of the run time: it is the queue that the case is about.
    call = ToolCall(name="python", arguments={"code": case["code"].replace("time.sleep(0.2)", "time.sleep(0.02)")})
    with serving("--slots", str(case["slots"]), "--queue", str(case["parallel_calls"])) as server:
        tool = PythonExecutorTool({"sandbox_url": server.url, "timeout_sec": case["run_timeout_s"]})
        records = await _at_a_time(tool, call, case["parallel_calls"], 200)
        assert {record.error_kind for record in records} == {None}
        assert all(record.run_ms < case["run_timeout_s"] * 1e3 for record in records)
        assert max(record.queue_ms for record in records) > max(record.run_ms for record in records)
        await tool.aclose()
    with serving("--slots", "1", "--queue", "1") as server:
        tool = PythonExecutorTool({"sandbox_url": server.url, "timeout_sec": 5})
        slow = ToolCall(name="python", arguments={"code": "import time\ntime.sleep(3)"})
        kinds = [record.error_kind for record in await _at_a_time(tool, slow, 8, 2)]
        assert ErrorKind.OVERLOADED in kinds
        assert set(kinds) <= {ErrorKind.OVERLOADED, ErrorKind.INFRA, None}
        await tool.aclose()


async def _at_a_time(tool: PythonExecutorTool, call: ToolCall, count: int, timeout_s: float) -> list[Any]:
    box = ToolBox({"python": tool}, DispatchLimits(call_timeout_s=timeout_s))

    async def one(number: int) -> Any:
        async with box.trajectory(str(number)) as session:
            return (await session.call(call, 0, 0)).record

    return await asyncio.gather(*(one(number) for number in range(count)))


@expects("X07")
async def _(case: Any, world: World) -> None:
    assert len(case["steps"]) == 3
    slots, done = Slots(2), []

    async def worker(calls: int) -> None:
        async def call() -> None:
            async with slots:
                await asyncio.sleep(0)
                done.append(1)

        await asyncio.gather(*(call() for _ in range(calls)))

    for calls in (1, 100):  # worker A ends, its event loop with it; worker B goes on with the same limiter
        thread = threading.Thread(target=lambda calls=calls: asyncio.run(worker(calls)))
        thread.start()
        await asyncio.to_thread(thread.join)
    assert (len(done), slots.free) == (101, 2)
    assert ToolBox(world.tools, DispatchLimits(max_concurrency=5)).slots is not slots
