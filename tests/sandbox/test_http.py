"""The HTTP interface, seen by a client that is not ours."""

from __future__ import annotations

import asyncio
import base64
import io
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from .server_process import ServerProcess, serving


@pytest.fixture
async def http(server: ServerProcess) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(server.url) as session:
        yield session


async def _post(http: aiohttp.ClientSession, path: str, body: Any) -> tuple[int, dict[str, Any]]:
    async with http.post(path, json=body) as response:
        return response.status, await response.json()


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "code"),
        ({"code": 1}, "code"),
        ({"code": "1", "surprise": 1}, "surprise"),
        ({"code": "1", "language": "cobol"}, "language"),
        ({"code": "1", "limits": {"wall_s": -1}}, "limits.wall_s"),
        ({"code": "1", "limits": {"wall_s": 3000}}, "limits.wall_s"),
        ({"code": "1", "limits": {"memory_mb": 1_000_000}}, "limits.memory_mb"),
        ({"code": "1", "limits": {"memory_mb": "lots"}}, "limits.memory_mb"),
        ({"code": "1", "files": {"../x": ""}}, "files"),
        ({"code": "1", "files": {"/etc/x": ""}}, "files"),
        ({"code": "1", "files": {"x": "not base64!"}}, "files.x"),
        ({"code": "1", "fetch_files": ["/etc/passwd"]}, "fetch_files.0"),
        ({"code": "1", "env": {"A=B": "x"}}, "env"),
        ({"code": "1", "args": ["a\0b"]}, "args.0"),
        ([], "whole input"),
    ],
)
async def test_bad_input_names_the_field(http: aiohttp.ClientSession, body: Any, field: str) -> None:
    status, answer = await _post(http, "/v1/run", body)
    assert (status, answer["kind"]) == (422, "arguments")
    assert field in answer["detail"]
    assert "Traceback" not in answer["detail"]


async def test_text_that_is_not_json(http: aiohttp.ClientSession) -> None:
    for body in (b"", b"{", b"\xff\xfe", b'{"code": "\\ud800"}'):
        async with http.post("/v1/run", data=body) as response:
            assert response.status == 422
            assert (await response.json())["kind"] == "arguments"


async def test_a_body_over_the_cap() -> None:
    with serving("--max-body-mb", "1") as server:
        async with aiohttp.ClientSession(server.url) as http:
            body = json.dumps({"code": "x" * (2 << 20)}).encode()
            async with http.post("/v1/run", data=io.BytesIO(body)) as response:
                assert response.status == 413
                assert "1048576 bytes" in (await response.json())["detail"]

            async def chunks() -> AsyncIterator[bytes]:
                for _ in range(40):
                    yield b"x" * 65536

            async with http.post("/v1/run", data=chunks()) as response:  # of no declared length
                assert response.status == 413


# verl's client retries a 504 and nothing else.
@pytest.mark.parametrize(("path", "code"), [("/v1/run", 429), ("/run_code", 504)])
async def test_overload_has_a_code_and_advice(path: str, code: int) -> None:
    with serving("--slots", "1", "--queue", "0") as server:
        async with aiohttp.ClientSession(server.url) as http:
            body = {"code": "import time; time.sleep(1)", "language": "python"}
            answers = await asyncio.gather(*(http.post(path, json=body) for _ in range(3)))
            assert sorted(answer.status for answer in answers) == [200, code, code]
            for answer in answers:
                if answer.status == code:
                    assert int(answer.headers["Retry-After"]) >= 1
                    assert (await answer.json())["kind"] == "overloaded"
                answer.close()


async def test_state(http: aiohttp.ClientSession) -> None:
    async with http.get("/v1/health") as response:
        assert (response.status, await response.json()) == (200, {"status": "ok"})
    async with http.get("/v1/ping") as response:
        assert await response.json() == "pong"
    async with http.get("/v1/info") as response:
        info = await response.json()
    assert {"seccomp", "user namespace", "read-only root", "no network"} <= set(info["isolation"])
    assert info["pool"]["slots"] == 4
    assert info["default_limits"]["wall_s"] == 10


async def test_health_answers_while_programs_loop(http: aiohttp.ClientSession) -> None:
    body = {"code": "while True: print('x' * 1000)", "limits": {"wall_s": 2}}
    loops = [asyncio.create_task(_post(http, "/v1/run", body)) for _ in range(4)]
    answered = 0
    while not all(loop.done() for loop in loops):
        async with http.get("/v1/health", timeout=aiohttp.ClientTimeout(2)) as response:
            answered += response.status == 200
    assert answered > 10
    assert {(await loop)[1]["status"] for loop in loops} <= {"timeout", "output_limit"}


# --- SandboxFusion's wire ---


async def _run_code(http: aiohttp.ClientSession, **body: Any) -> tuple[int, dict[str, Any]]:
    return await _post(http, "/run_code", {"language": "python", **body})


async def test_run_code_success(http: aiohttp.ClientSession) -> None:
    status, answer = await _run_code(http, code="print(input())", stdin="hi", unknown_field=1, memory_limit_MB=-1)
    assert (status, answer["status"], answer["compile_result"]) == (200, "Success", None)
    run = answer["run_result"]
    assert (run["status"], run["return_code"], run["stdout"], run["stderr"]) == ("Finished", 0, "hi\n", "")
    assert run["execution_time"] > 0


async def test_run_code_failure(http: aiohttp.ClientSession) -> None:
    _, answer = await _run_code(http, code="print('out'); raise SystemExit(3)")
    assert answer["status"] == "Failed"
    assert (answer["run_result"]["status"], answer["run_result"]["return_code"]) == ("Finished", 3)
    _, answer = await _run_code(http, code="import os; os.kill(os.getpid(), 9)")
    assert (answer["status"], answer["run_result"]["return_code"]) == ("Failed", -9)


async def test_run_code_timeout(http: aiohttp.ClientSession) -> None:
    _, answer = await _run_code(http, code="print('a')\nwhile True: pass", run_timeout=0.5)
    assert answer["status"] == "Failed"
    run = answer["run_result"]
    assert (run["status"], run["return_code"], run["stdout"]) == ("TimeLimitExceeded", None, "a\n")


async def test_run_code_memory_limit(http: aiohttp.ClientSession) -> None:
    _, answer = await _run_code(http, code="x = bytearray(300 << 20)", memory_limit_MB=128)
    assert answer["status"] == "Failed"
    assert "MemoryError" in answer["run_result"]["stderr"]


async def test_run_code_files(http: aiohttp.ClientSession) -> None:
    code = "open('out', 'w').write(open('in').read().upper())"
    files = {"in": base64.b64encode(b"abc").decode(), "none": None}
    _, answer = await _run_code(http, code=code, files=files, fetch_files=["out", "absent"])
    assert answer["files"] == {"out": base64.b64encode(b"ABC").decode()}


@pytest.mark.parametrize(
    "body",
    [
        {"code": "1", "language": "cobol"},
        {"code": "1"},
        {"language": "python"},
        {"code": "1", "language": "python", "run_timeout": -1},
        {"code": "1", "language": "python", "files": {"../up": "eA=="}},
        {"code": "1", "language": "python", "memory_limit_MB": 3},
    ],
)
async def test_run_code_bad_requests(http: aiohttp.ClientSession, body: dict[str, Any]) -> None:
    assert (await _post(http, "/run_code", body))[0] == 422
