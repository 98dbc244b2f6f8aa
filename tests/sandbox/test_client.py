"""The client: what it retries, what it raises, and what it does with servers that are not sandboxes."""

from __future__ import annotations

import asyncio
import pickle
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web

from rollbox.sandbox.client import Sandbox
from rollbox.schemas.errors import ConfigError, OverloadedError, SandboxError, ToolError
from rollbox.schemas.run import RunRequest, RunResult, RunStatus

from .server_process import ServerProcess, processes_with, until

EMBEDDING = """
import asyncio
from rollbox.sandbox.client import Sandbox

async def main():
    async with Sandbox.embedded(slots=1, shared=False) as sandbox:
        print(sandbox.server_pid, flush=True)
        await asyncio.sleep(300)

asyncio.run(main())
"""
PRINT = RunRequest(code="print(1)")
OK = RunResult(status=RunStatus.OK, exit_code=0, stdout="1\n").model_dump_json()


@asynccontextmanager
async def answering(handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> AsyncIterator[str]:
    """A server that answers every request with `handler`; yields its address."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    listener = socket.create_server(("127.0.0.1", 0))
    await web.SockSite(runner, listener).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        await runner.cleanup()
        listener.close()


@pytest.mark.parametrize("url", ["sandbox_url", "", "localhost:8080", "http://", "ftp://x", "http://h:port", "//h"])
def test_a_placeholder_url_stops_at_construction(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Sandbox.connect(url)
    assert repr(url) in str(caught.value)


async def test_a_server_that_cannot_be_reached() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    async with Sandbox.connect(f"http://127.0.0.1:{port}", max_retries=2) as sandbox:
        with pytest.raises(SandboxError, match=f"127.0.0.1:{port} cannot be reached") as caught:
            await sandbox.run(PRINT)
    assert caught.value.retries == 2
    assert pickle.loads(pickle.dumps(caught.value)).retries == 2


@pytest.mark.parametrize(
    ("status", "kind", "text", "shown"),
    [
        (500, "text/html", "<html><h1>oops</h1></html>" * 100, "answered 500: <html>"),
        (502, "text/plain", "", "answered 502"),
        (200, "text/html", "<h1>Welcome</h1>", "something else than a run result: <h1>Welcome"),
        (200, "application/json", '{"status": "ok", "surprise": 1}', "something else"),
        (200, "application/json", "", "something else"),
        (404, "application/json", '{"detail": "Not Found"}', "answered 404: Not Found"),
    ],
)
async def test_answers_that_are_no_results(status: int, kind: str, text: str, shown: str) -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(status=status, text=text, content_type=kind)

    async with answering(handler) as url, Sandbox.connect(url, max_retries=0) as sandbox:
        with pytest.raises(SandboxError, match=shown) as caught:
            await sandbox.run(PRINT)
    assert len(str(caught.value)) < 400


async def test_failures_are_retried_and_counted() -> None:
    answers = [
        web.Response(status=503, text='{"kind": "infra", "detail": "x"}'),
        web.Response(status=429, text='{"detail": "full"}', headers={"Retry-After": "0"}),
        web.Response(text=OK, content_type="application/json"),
    ]

    async def handler(request: web.Request) -> web.Response:
        return answers.pop(0)

    async with answering(handler) as url, Sandbox.connect(url) as sandbox:
        result, retries = await sandbox.run_counted(PRINT)
    assert (result.stdout, retries) == ("1\n", 2)


async def test_a_dropped_connection_is_retried() -> None:
    seen = 0

    async def handler(request: web.Request) -> web.Response:
        nonlocal seen
        seen += 1
        if seen == 1:
            assert request.transport is not None
            request.transport.close()
        return web.Response(text=OK, content_type="application/json")

    async with answering(handler) as url, Sandbox.connect(url) as sandbox:
        assert await sandbox.run_counted(PRINT) == (RunResult.model_validate_json(OK), 1)


async def test_an_answer_lost_on_the_way_is_not_a_second_run(server: ServerProcess) -> None:
    bodies: list[bytes] = []
    answers: list[bytes] = []

    async def lose_the_first(request: web.Request) -> web.StreamResponse:
        bodies.append(await request.read())
        async with aiohttp.ClientSession() as session, session.post(f"{server.url}/v1/run", data=bodies[-1]) as answer:
            answers.append(await answer.read())
        if len(answers) == 1:
            assert request.transport is not None
            request.transport.abort()
        return web.Response(body=answers[-1], content_type="application/json")

    async with answering(lose_the_first) as url, Sandbox.connect(url) as sandbox:
        result, retries = await sandbox.run_counted(RunRequest(code="import os; print(os.urandom(16).hex())"))
    assert retries == 1
    assert bodies[0] == bodies[1]
    assert RunResult.model_validate_json(answers[0]).stdout == result.stdout


async def test_overload_is_retried_until_the_deadline() -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(status=429, text='{"detail": "full"}', headers={"Retry-After": "0"})

    async with answering(handler) as url, Sandbox.connect(url, max_retries=0) as sandbox:
        with pytest.raises(OverloadedError, match="full") as caught:
            await sandbox.run(PRINT, deadline_s=1)
    assert caught.value.retries >= 1


async def test_a_silent_server_is_left_at_the_deadline() -> None:
    gone = asyncio.Event()

    async def handler(request: web.Request) -> web.Response:
        try:
            await asyncio.sleep(60)
        finally:
            gone.set()
        return web.Response()

    async with answering(handler) as url, Sandbox.connect(url) as sandbox:
        with pytest.raises(SandboxError, match=r"no answer .* within 0\.[0-4] s"):
            await sandbox.run(PRINT, deadline_s=0.4)


async def test_a_refused_request_is_not_retried() -> None:
    seen = 0

    async def handler(request: web.Request) -> web.Response:
        nonlocal seen
        seen += 1
        return web.Response(status=422, text='{"kind": "arguments", "detail": "code: too strange"}')

    async with answering(handler) as url, Sandbox.connect(url) as sandbox:
        with pytest.raises(ToolError, match="code: too strange"):
            await sandbox.run(PRINT)
    assert seen == 1


async def test_text_that_is_not_unicode(sandbox: Sandbox) -> None:
    with pytest.raises(ToolError, match="not valid Unicode"):
        await sandbox.run(RunRequest.model_construct(code="print('\ud800')"))


async def test_unopened_clients_say_so() -> None:
    with pytest.raises(SandboxError, match="async with"):
        await Sandbox.connect("http://127.0.0.1:1").run(PRINT, deadline_s=0.1)
    with pytest.raises(SandboxError, match="async with"):
        await Sandbox.embedded().run(PRINT, deadline_s=0.1)


@pytest.mark.parametrize("shared", [True, False])
async def test_embedded_server_lives_as_long_as_its_context(shared: bool) -> None:
    async with Sandbox.embedded(slots=1, shared=shared) as sandbox:
        pid = sandbox.server_pid
        assert (await sandbox.run(PRINT)).stdout == "1\n"
        assert (await sandbox.info())["pool"]["slots"] == 1
        second, third = await asyncio.gather(sandbox.run(PRINT), sandbox.run(PRINT))
        assert second.stdout == third.stdout == "1\n"
    assert pid not in processes_with("rollbox.sandbox.serve")


async def test_embedded_server_with_a_wrong_setting() -> None:
    with pytest.raises(SandboxError, match=r"did not start \(exit code 3\)"):
        async with Sandbox.embedded(slots=0, shared=False):
            pass
    with pytest.raises(SandboxError, match="did not start: rollbox sandbox cannot start: command line: slots"):
        async with Sandbox.embedded(slots=0):
            pass


async def test_embedded_server_dies_with_its_parent() -> None:
    parent = subprocess.Popen([sys.executable, "-c", EMBEDDING], stdout=subprocess.PIPE, text=True)
    with parent:
        assert parent.stdout is not None
        server = int(parent.stdout.readline())
        assert server in processes_with("rollbox.sandbox.serve")
        parent.kill()
    await until(lambda: server not in processes_with("rollbox.sandbox.serve"))
