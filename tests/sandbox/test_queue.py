"""Slots, queue and overload."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest

from rollbox.sandbox.client import Sandbox
from rollbox.schemas.errors import OverloadedError
from rollbox.schemas.run import RunLimits, RunRequest
from rollbox.serving.admission import Admission

from .server_process import serving


@pytest.mark.timeout(300)
async def test_r01_overload_waits_in_the_queue_and_not_in_the_run(cases: dict[str, Any]) -> None:
    case = cases["R01"]["input"]
    code = case["code"].replace("time.sleep(0.2)", "time.sleep(0.02)")
    request = RunRequest(code=code, limits=RunLimits(wall_s=case["run_timeout_s"]))
    async with Sandbox.embedded(slots=case["slots"], queue=case["parallel_calls"]) as sandbox:
        answers = await asyncio.gather(*(sandbox.run_counted(request) for _ in range(case["parallel_calls"])))
    assert {(result.status.value, result.stdout, retries) for result, retries in answers} == {("ok", "ok\n", 0)}
    results = [result for result, _ in answers]
    assert all(result.run_ms < 1000 for result in results)
    assert max(result.queue_ms for result in results) > 10 * max(result.run_ms for result in results)


async def test_a_full_queue_is_an_overload_error_and_then_recovers() -> None:
    async def refused() -> float:
        async with http.get("/metrics") as response:
            lines = (await response.text()).splitlines()
        return sum(
            float(line.split()[1]) for line in lines if line.startswith('rollbox_errors_total{kind="overloaded"}')
        )

    with serving("--slots", "1", "--queue", "1") as server:
        async with (
            Sandbox.connect(server.url) as patient,
            Sandbox.connect(server.url, waits_when_full=False) as impatient,
            aiohttp.ClientSession(server.url) as http,
        ):
            slow = RunRequest(code="import time; time.sleep(300)", limits=RunLimits(wall_s=300))
            quick = RunRequest(code="print('ok')")
            busy = [asyncio.create_task(patient.run(slow)) for _ in range(2)]
            while (await patient.info())["pool"]["waiting"] != 1:
                pass
            with pytest.raises(OverloadedError, match="1 slots are busy and 1 requests wait") as caught:
                await impatient.run(quick)
            assert caught.value.retry_after_s >= 1
            waiting = asyncio.create_task(patient.run_counted(quick, deadline_s=60))
            while await refused() < 2:
                pass
            for task in busy:
                task.cancel()
            await asyncio.gather(*busy, return_exceptions=True)
            result, retries = await waiting
            assert (result.stdout, retries > 0) == ("ok\n", True)


async def test_slots_are_given_in_order_of_arrival() -> None:
    admission = Admission(slots=1, queue=10)
    order: list[int] = []

    async def take(number: int) -> None:
        async with admission.slot():
            order.append(number)
            await asyncio.sleep(0)

    await asyncio.gather(*(take(number) for number in range(8)))
    assert order == list(range(8))
    assert (admission.running, admission.waiting) == (0, 0)


async def test_cancellation_at_any_moment_loses_no_slot() -> None:
    admission = Admission(slots=1, queue=10)
    release = asyncio.Event()

    async def hold() -> None:
        async with admission.slot():
            await release.wait()

    holder = asyncio.create_task(hold())
    waiters = [asyncio.create_task(hold()) for _ in range(4)]
    await asyncio.sleep(0)
    waiters[0].cancel()
    release.set()
    await holder  # hands the slot on in the turn in which the next waiter is cancelled
    waiters[1].cancel()
    await asyncio.gather(*waiters, return_exceptions=True)
    assert (admission.running, admission.waiting) == (0, 0)


async def test_retry_advice_grows_with_the_queue() -> None:
    async def advice(queue: int) -> float:
        admission = Admission(slots=1, queue=queue)
        async with admission.slot():
            waiting = [asyncio.create_task(admission._acquire()) for _ in range(queue)]
            await asyncio.sleep(0)
            with pytest.raises(OverloadedError) as caught:
                await admission._acquire()
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
        return caught.value.retry_after_s

    assert await advice(0) < await advice(5) <= 30
