"""Batches, idempotency keys, turns between clients, metrics."""

from __future__ import annotations

import asyncio
import json
import uuid
from typing import Any

import aiohttp
import pytest

from rollbox.sandbox.client import Sandbox
from rollbox.sandbox.idempotency import Idempotency
from rollbox.schemas.errors import SandboxError, ToolError
from rollbox.schemas.run import RunRequest, RunResult, RunStatus
from rollbox.serving.admission import Admission

from .server_process import ServerProcess, processes_with, serving, until


async def _lines(http: aiohttp.ClientSession, runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    async with http.post("/v1/batch", json={"runs": runs}) as response:
        assert (response.status, response.content_type) == (200, "application/x-ndjson")
        return [json.loads(line) async for line in response.content]


async def test_a_batch_is_answered_as_runs_end(server: ServerProcess) -> None:
    runs: list[dict[str, Any]] = [{"code": "import time; time.sleep(0.5); print('slow')"}]
    runs += [{"code": f"print({number})"} for number in range(1, 30)]
    runs.append({"code": "1/0"})
    async with aiohttp.ClientSession(server.url) as http:
        lines = await _lines(http, runs)
    assert sorted(line["index"] for line in lines) == list(range(31))
    assert lines[0]["index"] != 0
    by_index = {line["index"]: line for line in lines}
    assert [by_index[number]["result"]["stdout"] for number in range(1, 30)] == [f"{n}\n" for n in range(1, 30)]
    assert by_index[0]["result"]["stdout"] == "slow\n"
    assert by_index[30]["result"]["status"] == "error"


async def test_a_batch_that_cannot_be_served_whole_is_refused_before_any_of_it_runs(server: ServerProcess) -> None:
    refused: list[tuple[dict[str, Any], str]] = [
        ({"code": "1", "limits": {"wall_s": 3000}}, "runs.1.limits.wall_s: 3000"),
        ({"code": "1", "language": "cobol"}, "runs.1.language: 'cobol' is not available"),
    ]
    async with aiohttp.ClientSession(server.url) as http:
        for run, said in refused:
            async with http.post("/v1/batch", json={"runs": [{"code": "1"}, run]}) as response:
                assert response.status == 422
                assert said in (await response.json())["detail"]


async def test_a_bad_batch_is_refused(server: ServerProcess) -> None:
    async with aiohttp.ClientSession(server.url) as http:
        for body in ({"runs": []}, {"runs": [{"code": 1}]}, {"runs": [{"code": "1"}], "more": 1}, {}):
            async with http.post("/v1/batch", json=body) as response:
                assert response.status == 422


async def test_leaving_a_batch_ends_its_runs(server: ServerProcess) -> None:
    marker = f"marker-{uuid.uuid4()}"
    runs = [{"code": "import time; time.sleep(300)", "args": [marker]} for _ in range(6)]
    async with aiohttp.ClientSession(server.url) as http:
        asking = asyncio.create_task(_lines(http, runs))
        await until(lambda: len(processes_with(marker)) == 4)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await until(lambda: processes_with(marker) == [])
        async with Sandbox.connect(server.url) as sandbox:
            while (await sandbox.info())["pool"]["running"]:
                pass


async def test_a_repeated_key_is_answered_with_the_first_result(server: ServerProcess) -> None:
    request = RunRequest(code="import uuid; print(uuid.uuid4())", idempotency_key=str(uuid.uuid4()))
    async with Sandbox.connect(server.url) as sandbox:
        first = await sandbox.run(request)
        assert (await sandbox.run(request)).stdout == first.stdout
        together = request.model_copy(update={"idempotency_key": str(uuid.uuid4())})
        answers = await asyncio.gather(*(sandbox.run(together) for _ in range(5)))
        assert len({answer.stdout for answer in answers} - {first.stdout}) == 1
        with pytest.raises(ToolError, match="idempotency_key"):
            await sandbox.run(request.model_copy(update={"code": "print(2)"}))


class _Work:
    """Stands for runs that end when told."""

    def __init__(self) -> None:
        self.started = 0
        self.go = asyncio.Event()
        self.error: Exception | None = None

    async def __call__(self) -> RunResult:
        self.started += 1
        await self.go.wait()
        if self.error is not None:
            raise self.error
        return RunResult(status=RunStatus.OK, stdout=str(self.started))


async def test_a_run_lives_as_long_as_one_of_its_callers() -> None:
    table, work, request = Idempotency(), _Work(), RunRequest(code="1", idempotency_key="k")
    callers = [asyncio.create_task(table.run(request, work)) for _ in range(2)]
    await asyncio.sleep(0)
    callers[0].cancel()
    await asyncio.gather(callers[0], return_exceptions=True)
    work.go.set()
    assert (await callers[1]).stdout == "1"
    work.go.clear()
    alone = asyncio.create_task(table.run(request.model_copy(update={"idempotency_key": "l"}), work))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    alone.cancel()
    await asyncio.gather(alone, return_exceptions=True)
    work.go.set()
    assert (await table.run(request.model_copy(update={"idempotency_key": "l"}), work)).stdout == "3"


async def test_failures_of_ours_and_old_results_are_not_kept() -> None:
    table, work, request = Idempotency(keep_s=0.0), _Work(), RunRequest(code="1", idempotency_key="k")
    work.go.set()
    work.error = SandboxError("lost")
    with pytest.raises(SandboxError):
        await table.run(request, work)
    work.error = None
    assert (await table.run(request, work)).stdout == "2"
    assert (await table.run(request, work)).stdout == "3"


async def test_waiting_clients_take_turns() -> None:
    admission = Admission(slots=1, queue=100)
    order: list[str] = []

    async def take(client: str) -> None:
        async with admission.slot(client):
            order.append(client)
            await asyncio.sleep(0)

    await asyncio.gather(*(take(client) for client in "aaaaabbc"))
    assert "".join(order) == "aabcabaa"


async def test_metrics_count_what_happened() -> None:
    with serving("--slots", "1") as server:
        async with aiohttp.ClientSession(server.url) as http, Sandbox.connect(server.url) as sandbox:
            for code in ("print(1)", "1/0", "1/0"):
                await sandbox.run(RunRequest(code=code))
            with pytest.raises(ToolError):
                await sandbox.run(RunRequest(code="1", language="cobol"))
            async with http.get("/metrics") as response:
                lines = (await response.text()).splitlines()
    assert 'rollbox_runs_total{status="ok"} 1.0' in lines
    assert 'rollbox_runs_total{status="error"} 2.0' in lines
    assert 'rollbox_errors_total{kind="arguments"} 1.0' in lines
    assert "rollbox_run_seconds_count 3.0" in lines
    assert "rollbox_slots 1.0" in lines


async def test_info_names_languages_and_packages(server: ServerProcess) -> None:
    import numpy

    async with Sandbox.connect(server.url) as sandbox:
        info = await sandbox.info()
    assert info["languages"]["python"].startswith("3.")
    assert info["packages"]["math"]["numpy"] == numpy.__version__
    assert info["packages"]["bare"] == {}
