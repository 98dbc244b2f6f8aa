"""Tokens, and the cap per client."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

from rollbox.sandbox.client import Sandbox
from rollbox.schemas.errors import ConfigError, OverloadedError
from rollbox.schemas.run import RunRequest
from rollbox.serving.access import is_loopback
from rollbox.tools.python_executor import PythonExecutorTool

from .server_process import ServerProcess, processes_with, serving, until

TOKEN = "correct-horse-battery-staple"
VARIABLE = "ROLLBOX_SANDBOX_TOKEN"
ROUTES = (
    *(("GET", path) for path in ("/v1/info", "/metrics", "/docs", "/openapi.json", "/nothing", "/v1/health/")),
    *(("POST", path) for path in ("/v1/run", "/v1/batch", "/run_code", "/run_jupyter")),
)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    file = tmp_path_factory.mktemp("token") / "token"
    file.write_text(f"{TOKEN}\n")
    with serving("--slots", "2", "--token-file", str(file), "--max-per-client", "1") as server:
        yield server


@pytest.mark.parametrize(("method", "path"), ROUTES)
@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer ", TOKEN, f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", f"Basic {TOKEN}", "é"]
)
async def test_without_the_token_every_route_is_closed(
    guarded: ServerProcess, method: str, path: str, header: str | None
) -> None:
    headers = {} if header is None else {"Authorization": header}
    async with (
        aiohttp.ClientSession(guarded.url, headers=headers) as http,
        http.request(method, path, json={"code": "print(1)"}) as response,
    ):
        assert response.status == 401
        assert response.headers["WWW-Authenticate"] == "Bearer"
        answer = await response.json()
    assert answer["kind"] == "arguments"
    assert TOKEN not in answer["detail"]


async def test_health_and_ping_are_open(guarded: ServerProcess) -> None:
    async with aiohttp.ClientSession(guarded.url) as http:
        for path in ("/v1/health", "/v1/ping"):
            async with http.get(path) as response:
                assert response.status == 200


async def test_with_the_token_it_is_a_server_like_any(guarded: ServerProcess) -> None:
    async with Sandbox.connect(guarded.url, token=TOKEN) as sandbox:
        assert (await sandbox.run(RunRequest(code="print(1)"))).stdout == "1\n"
        assert (await sandbox.info())["max_per_client"] == 1


async def test_the_client_finds_the_token_in_the_environment(
    guarded: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, f" {TOKEN}\n")
    async with Sandbox.connect(guarded.url) as sandbox:
        assert (await sandbox.run(RunRequest(code="print(1)"))).stdout == "1\n"


async def test_a_wrong_token_is_a_wrong_setting_and_is_not_retried(guarded: ServerProcess) -> None:
    for token in (None, "wrong"):
        async with Sandbox.connect(guarded.url, token=token) as sandbox:
            with pytest.raises(ConfigError, match=rf"asks for a token.*sandbox_token.*{VARIABLE}"):
                await sandbox.run(RunRequest(code="print(1)"))


@pytest.mark.parametrize("token", ["", "two words", "line\nbreak", "ünïcode", "\0"])
def test_a_token_that_no_header_can_hold(token: str) -> None:
    with pytest.raises(ConfigError, match="printable ASCII"):
        Sandbox.connect("http://127.0.0.1:1", token=token)
    with pytest.raises(ConfigError, match="sandbox_token") as caught:
        PythonExecutorTool({"sandbox_token": token})
    assert not token or token not in str(caught.value)


async def test_the_tool_shows_its_token(guarded: ServerProcess) -> None:
    tool = PythonExecutorTool({"sandbox_url": guarded.url, "sandbox_token": TOKEN})
    assert TOKEN not in repr(tool.config)
    instance, _ = await tool.create()
    response, _, _ = await tool.execute(instance, {"code": "print(6 * 7)"})
    assert response.text == "42"
    await tool.aclose()


async def test_an_embedded_server_has_the_token_of_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, TOKEN)
    async with Sandbox.embedded(slots=1) as sandbox:
        assert (await sandbox.run(RunRequest(code="import os; print(dict(os.environ))"))).stdout.count(TOKEN) == 0
        async with aiohttp.ClientSession(sandbox.url) as http, http.get("/v1/info") as response:
            assert response.status == 401


def _start(*arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rollbox.sandbox.serve", "--port", "0", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=env)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.test", ""])
def test_beyond_loopback_a_token_is_required(host: str) -> None:
    result = _start("--host", host)
    assert result.returncode == 3
    assert f"host: {host!r} can be reached from other machines" in result.stderr
    assert VARIABLE in result.stderr


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "cannot be read: No such file"), ("\n", "is empty"), ("short", "5 characters"), ("a b" * 9, "printable")],
)
def test_a_token_file_that_is_none(tmp_path: Path, content: str | None, said: str) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_text(content)
    result = _start("--token-file", str(file))
    assert result.returncode == 3
    assert str(file) in result.stderr
    assert said in result.stderr
    assert content is None or not content.strip() or content not in result.stderr


@pytest.mark.parametrize("arguments", [("--insecure",), ("--token-file", "FILE")])
async def test_beyond_loopback_it_serves_with_a_token_or_when_told(arguments: tuple[str, ...], tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    given = [str(file) if argument == "FILE" else argument for argument in arguments]
    with serving("--host", "0.0.0.0", "--slots", "1", *given) as server:
        async with Sandbox.connect(server.url, token=TOKEN) as sandbox:
            assert (await sandbox.run(RunRequest(code="print(1)"))).stdout == "1\n"


def test_loopback() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.3.2.1", "::1", "localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "", "10.0.0.1", "localhost.example.test")))


async def test_a_client_has_no_more_than_its_share(guarded: ServerProcess) -> None:
    marker = f"marker-{uuid.uuid4()}"
    sleeper = RunRequest(code="import time; time.sleep(300)", args=[marker], client="greedy")
    async with Sandbox.connect(guarded.url, token=TOKEN) as sandbox:
        first = asyncio.create_task(sandbox.run(sleeper))
        await until(lambda: len(processes_with(marker)) == 1)
        with pytest.raises(OverloadedError, match=r"client 'greedy' may have 1 runs.*max_per_client"):
            await sandbox.run(RunRequest(code="print(1)", client="greedy"), deadline_s=0.5)
        for client in ("modest", ""):
            assert (await sandbox.run(RunRequest(code="print(1)", client=client))).stdout == "1\n"
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        assert (await sandbox.run(RunRequest(code="print(2)", client="greedy"), deadline_s=30)).stdout == "2\n"


async def test_requests_without_a_name_are_one_client(guarded: ServerProcess) -> None:
    marker = f"marker-{uuid.uuid4()}"
    async with aiohttp.ClientSession(guarded.url, headers={"Authorization": f"Bearer {TOKEN}"}) as http:
        body = {"code": "import time; time.sleep(300)", "args": [marker]}
        first = asyncio.create_task(http.post("/v1/run", json=body))
        await until(lambda: len(processes_with(marker)) == 1)
        async with http.post("/v1/run", json={"code": "print(1)"}) as response:
            assert response.status == 429
            assert response.headers["Retry-After"] == "1"
            assert "requests that name no client" in (await response.json())["detail"]
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)


async def test_a_batch_of_one_client_waits_for_itself(guarded: ServerProcess) -> None:
    async with aiohttp.ClientSession(guarded.url, headers={"Authorization": f"Bearer {TOKEN}"}) as http:
        runs = [{"code": f"print({number})", "client": "batch"} for number in range(5)]
        async with http.post("/v1/batch", json={"runs": runs}) as response:
            lines = (await response.text()).splitlines()
    assert len(lines) == 5
    assert all('"status":"ok"' in line for line in lines)
