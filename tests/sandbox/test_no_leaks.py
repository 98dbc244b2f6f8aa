"""No answer of a server, whatever it was asked and whatever went wrong, shows a traceback or a path of the host."""

from __future__ import annotations

import asyncio
import io
import json
import os
import resource
import signal
import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp
import pytest
from starlette.types import ASGIApp, Message

import rollbox
from rollbox.sandbox.client import Sandbox
from rollbox.sandbox.pool import Pool, PoolInfo
from rollbox.sandbox.server import create_app
from rollbox.sandbox.settings import SandboxSettings
from rollbox.schemas.run import RunRequest, RunResult

from .server_process import ServerProcess, below, serving

SECRET_PATH = "/srv/private/rollbox.key"
TELLING = (
    *("Traceback", 'File "', "site-packages", "/proc/", ".py", SECRET_PATH),
    *(str(Path(rollbox.__file__).resolve().parent), sys.prefix, sys.base_prefix, os.getcwd()),
)
BODIES: tuple[Any, ...] = (
    *(
        {},
        [],
        1,
        "text",
        None,
        {"code": None},
        {"code": "1", "limits": 3},
        {"code": "1", "files": {"a/../../x": "eA=="}},
    ),
    *({"code": "1", "files": {"x": "%"}}, {"code": "\ud800"}, {"code": "1", "limits": {"wall_s": 1e308}}),
    *({"runs": [{"code": "1", "limits": {"memory_mb": 10**30}}]}, {"runs": 1}, {"cells": ["1"], "total_timeout": -1}),
    *({"code": "1", "language": "../../etc/passwd"}, {"code": "1", "fetch_files": ["/etc/shadow"]}),
)
GOOD: dict[str, Any] = {
    "/v1/run": {"code": "print(1)"},
    "/v1/batch": {"runs": [{"code": "print(1)"}]},
    "/run_code": {"code": "print(1)", "language": "python"},
    "/run_jupyter": {"cells": ["print(1)"]},
}


def assert_silent(text: str, asked: object) -> None:
    assert [word for word in TELLING if word in text] == [], (asked, text)


async def _paths(http: aiohttp.ClientSession) -> dict[str, list[str]]:
    async with http.get("/openapi.json") as response:
        return {path: list(methods) for path, methods in (await response.json())["paths"].items()}


async def test_bad_requests(server: ServerProcess) -> None:
    async with aiohttp.ClientSession(server.url) as http:
        paths = await _paths(http)
        raw = [b"", b"\xff\xfe", b"{", b"[" * 50_000, json.dumps({"code": "x" * 5_000_000}).encode()]
        raw += [json.dumps(body).encode() for body in BODIES]
        for path in paths:
            for body in raw:
                if (path, body) == ("/v1/sessions", b"{}"):
                    continue  # a session with the defaults
                async with http.post(path, data=io.BytesIO(body)) as response:
                    answer = await response.json()
                    assert response.status in (404, 405, 410, 422), (path, body[:80], answer)
                    assert {"kind", "detail"} <= set(answer)
                    assert_silent(str(answer), (path, body[:80]))
        for path in (*paths, "/", "/../etc/passwd", "/%2e%2e/etc/passwd", "/v1/run/" + "x" * 5000, "/docs/x"):
            for method in ("GET", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "POST"):
                async with http.request(method, path) as response:
                    text = await response.text()
                    assert response.status < 500
                    if response.content_type == "application/json" and path != "/v1/info":
                        assert_silent(text, (method, path))


async def test_no_http_at_all(server: ServerProcess) -> None:
    for sent in (
        b"\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x02\x00",
        b"POST /v1/run HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
    ):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(sent)
        writer.write_eof()
        assert_silent((await reader.read()).decode(), sent)
        writer.close()
        await writer.wait_closed()


class BrokenPool:
    """Fails at everything, with a message that names a path."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    async def run(self, request: RunRequest, *_: object) -> RunResult:
        raise self._error

    def info(self) -> PoolInfo:
        raise self._error

    def packages(self) -> dict[str, dict[str, str]]:
        raise self._error


async def _asked(app: ASGIApp, method: str, path: str, body: Any) -> tuple[int, str]:
    """Call the application as a server would; what it raises after its answer is for the server's log."""
    sent: list[Message] = []
    arriving = [{"type": "http.request", "body": json.dumps(body).encode()}]

    async def receive() -> Message:
        return arriving.pop(0) if arriving else await asyncio.Future()

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": method, "path": path, "headers": [], "query_string": b"", "http_version": "1.1"}
    with suppress(RuntimeError, OSError):
        await app(scope, receive, send)
    text = b"".join(message.get("body", b"") for message in sent).decode()
    return sent[0]["status"], text


@pytest.mark.parametrize(
    "error",
    [RuntimeError(f"no such thing: {SECRET_PATH}"), FileNotFoundError(2, "No such file", SECRET_PATH)],
    ids=lambda error: type(error).__name__,
)
async def test_internal_failures(error: Exception) -> None:
    pool: Pool = BrokenPool(error)
    app = create_app(pool, SandboxSettings(slots=1))
    asked = [("POST", path, body) for path, body in GOOD.items()]
    asked += [("GET", path, None) for path in ("/v1/info", "/metrics")]
    for method, path, body in asked:
        status, text = await _asked(app, method, path, body)
        assert_silent(text, path)
        # The status of a batch was sent before the failure; this pool can have no notebooks.
        if path not in ("/v1/batch", "/run_jupyter"):
            assert (status, json.loads(text)["kind"]) == (500, "infra")


async def test_a_server_out_of_descriptors() -> None:
    with serving("--slots", "8") as server:
        async with aiohttp.ClientSession(server.url) as http:
            for path, body in GOOD.items():
                async with http.post(path, json=body) as response:
                    assert response.status == 200
            held = len(os.listdir(f"/proc/{server.process.pid}/fd"))
            _, most = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
            resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (held + 1, most))
            failed = 0
            for path, body in GOOD.items():
                asked = json.loads(json.dumps(body).replace("print(1)", "import sympy"))
                try:
                    async with http.post(path, json=asked) as response:
                        text = await response.text()
                except aiohttp.ClientError:  # there is no descriptor for a new connection either
                    failed += 1
                else:
                    failed += response.status == 503 or '"SandboxError"' in text or '"infra"' in text
                    assert_silent(text, path)
            assert failed
            resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (most, most))
        async with Sandbox.connect(server.url, max_retries=50) as sandbox:
            assert (await sandbox.run(RunRequest(code="print(1)"))).stdout == "1\n"


@pytest.mark.parametrize("path", GOOD)
async def test_a_zygote_that_is_killed_under_a_run(path: str) -> None:
    endless = "import time; time.sleep(300)"
    body = {"/run_jupyter": {"cells": [endless]}, "/v1/batch": {"runs": [{"code": endless}]}}.get(path)
    with serving("--slots", "1") as server:
        async with aiohttp.ClientSession(server.url) as http:

            async def answered() -> str:
                async with http.post(path, json=body or {**GOOD[path], "code": endless}) as response:
                    return await response.text()

            answer = asyncio.create_task(answered())
            while not answer.done():  # a program that had not begun is run again
                await asyncio.wait({answer}, timeout=1.0)
                for pid, command in below(server.process.pid).items():
                    if "jail.zygote" in command and not answer.done():
                        with suppress(ProcessLookupError):  # taken along by another
                            os.kill(pid, signal.SIGKILL)
            text = await answer
    assert "lost" in text
    assert_silent(text, path)
