"""McpTool against real server processes, over stdio and HTTP, killed in the middle."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rollbox.schemas.errors import ConfigError, ErrorKind
from rollbox.schemas.tool import ToolCall
from rollbox.tools.base import BaseTool
from rollbox.tools.dispatch import Answer, DispatchLimits, ToolBox
from rollbox.tools.mcp import McpTool, connection
from rollbox.tools.registry import load_tools

SERVER = Path(__file__).parent / "mcp_servers" / "counting_server.py"
STDIO = {"command": sys.executable, "args": [str(SERVER), "stdio"]}


@contextmanager
def http_server(port: int) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, str(SERVER), "http", str(port)], stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except ConnectionRefusedError:
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.02)
        yield process
    finally:
        process.kill()
        process.wait()


def load(folder: Path, config: dict[str, Any]) -> dict[str, BaseTool]:
    import yaml

    file = folder / "tools.yaml"
    file.write_text(yaml.safe_dump({"tools": [{"config": {"type": "mcp", **config}}]}))
    return load_tools(file)


async def call(tools: dict[str, BaseTool], name: str, limits: float = 60, **arguments: Any) -> Answer:
    made = DispatchLimits(call_timeout_s=limits)
    async with ToolBox(tools, made).trajectory("t") as session:
        return await session.call(ToolCall(name=name, arguments=arguments), 0, 0)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, BaseTool]:
    return load(tmp_path_factory.mktemp("mcp"), STDIO)


@pytest.fixture
async def stdio_tools(loaded: dict[str, BaseTool]) -> AsyncIterator[dict[str, BaseTool]]:
    yield loaded
    for tool in loaded.values():
        await tool.aclose()
    assert not connection._open.get(asyncio.get_running_loop())


async def test_schemas_are_passed_through(stdio_tools: dict[str, BaseTool]) -> None:
    schema = stdio_tools["add"].tool_schema.function
    assert schema.description == "Add two numbers."
    assert schema.parameters.required == ["a"]
    assert schema.parameters.properties["b"].model_dump()["default"] == 2


async def test_calls_over_stdio_share_one_connection(stdio_tools: dict[str, BaseTool]) -> None:
    answers = await asyncio.gather(*(call(stdio_tools, "add", a=i) for i in range(20)))
    assert [answer.response.text for answer in answers] == [str(i + 2) for i in range(20)]
    ids = {(await call(stdio_tools, "process_id")).response.text for _ in range(3)}
    assert len(ids) == 1


async def test_a_failing_tool_is_the_models_to_read(stdio_tools: dict[str, BaseTool]) -> None:
    answer = await call(stdio_tools, "fail")
    assert answer.record.error_kind is ErrorKind.USER_CODE
    assert "Error executing tool fail" in (answer.response.text or "")


async def test_images_come_as_images(stdio_tools: dict[str, BaseTool]) -> None:
    answer = await call(stdio_tools, "picture")
    assert answer.response.image is not None
    assert answer.response.image[0].getpixel((1, 1)) == (255, 0, 0)


async def test_a_server_killed_between_calls_is_started_again(stdio_tools: dict[str, BaseTool]) -> None:
    first = (await call(stdio_tools, "process_id")).response.text
    os.kill(int(first or ""), signal.SIGKILL)
    [[shared, _]] = connection._open[asyncio.get_running_loop()].values()
    await shared._closing.wait()
    answer = await call(stdio_tools, "add", a=1)
    assert (answer.record.error_kind, answer.response.text) == (None, "3")
    assert (await call(stdio_tools, "process_id")).response.text != first


async def test_a_server_that_dies_in_the_middle_is_an_infra_fault_and_comes_back(
    stdio_tools: dict[str, BaseTool],
) -> None:
    neighbour = asyncio.create_task(call(stdio_tools, "sleep", seconds=30))
    await call(stdio_tools, "add", a=1)
    answer = await call(stdio_tools, "die")
    assert answer.record.error_kind is ErrorKind.INFRA
    assert answer.response.text == "The tool 'die' is unavailable at the moment."
    assert (await neighbour).record.error_kind is ErrorKind.INFRA
    assert (await call(stdio_tools, "add", a=1)).response.text == "3"


async def test_a_repeatable_call_survives_the_death_of_its_server(
    stdio_tools: dict[str, BaseTool], tmp_path: Path
) -> None:
    answer = await call(stdio_tools, "die_once", marker=str(tmp_path / "marker"))
    assert (answer.response.text, answer.record.retries) == ("alive", 1)


async def test_a_slow_tool_ends_at_the_deadline(stdio_tools: dict[str, BaseTool]) -> None:
    await call(stdio_tools, "add", a=1)
    answer = await call(stdio_tools, "sleep", limits=0.5, seconds=60)
    assert answer.record.error_kind is ErrorKind.INFRA
    assert "no answer within" in (answer.record.error or "")


async def test_http_with_a_server_that_is_killed_and_comes_back(tmp_path: Path, unused_tcp_port: int) -> None:
    config = {"url": f"http://127.0.0.1:{unused_tcp_port}/mcp", "tools": ["add", "die", "process_id"]}
    with http_server(unused_tcp_port) as first:
        tools = await asyncio.to_thread(load, tmp_path, config)
        assert list(tools) == ["add", "die", "process_id"]
        assert (await call(tools, "add", a=40)).response.text == "42"
        assert (await call(tools, "process_id")).response.text == str(first.pid)
        assert (await call(tools, "die")).record.error_kind is ErrorKind.INFRA
        first.wait()
    down = await call(tools, "add", limits=1, a=1)
    assert down.record.error_kind is ErrorKind.INFRA
    assert down.record.executed
    with http_server(unused_tcp_port):
        assert (await call(tools, "add", a=1)).response.text == "3"
    for tool in tools.values():
        await tool.aclose()


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({**STDIO, "tools": ["ad"]}, "has no tool 'ad'; did you mean 'add'. It has: add, "),
        ({"url": "http://127.0.0.1:9/mcp"}, "cannot connect: ConnectError"),
        ({"url": "http://127.0.0.1:9/mcp", "command": "true"}, "give command .a program. or url"),
    ],
)
def test_wrong_settings_stop_at_start_up(config: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=said):
        load(tmp_path, config)


def test_a_constructor_asks_nobody() -> None:
    with pytest.raises(ConfigError, match="no tool_schema"):
        McpTool({"url": "http://127.0.0.1:9/mcp"})
