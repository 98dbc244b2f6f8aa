"""Slots over threads and event loops: none is lost, whoever leaves."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from rollbox.schemas.tool import ToolCall
from rollbox.tools.dispatch import DispatchLimits, ToolBox
from rollbox.tools.slots import Slots

from .counting_tool import CountingTool


async def test_turns_are_given_in_order() -> None:
    slots, order = Slots(1), []

    async def take(i: int) -> None:
        async with slots:
            order.append(i)
            await asyncio.sleep(0)

    await asyncio.gather(*(take(i) for i in range(10)))
    assert order == list(range(10))
    assert slots.free == 1


async def test_a_cancelled_waiter_does_not_keep_a_slot() -> None:
    slots = Slots(1)

    async def take() -> None:
        async with slots:
            pass

    async with slots:
        waiting = [asyncio.create_task(take()) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        await asyncio.sleep(0)
    waiting[1].cancel()  # its slot is on the way already
    await asyncio.gather(*waiting, return_exceptions=True)
    assert slots.free == 1


def test_x07_the_slots_outlive_whoever_made_them(cases: dict[str, Any]) -> None:
    """Worker A makes them and ends while it waits; worker B, on another thread and loop, calls a hundred times."""
    assert cases["X07"]["input"]["steps"][-1] == "worker B calls tool 100x"
    slots = Slots(2)

    async def worker_a() -> None:
        async with slots:
            others = [asyncio.create_task(_hold(slots)) for _ in range(5)]
            await asyncio.sleep(0)
            assert slots.free == 0
            del others

    asyncio.run(worker_a())
    done: list[int] = []

    async def call() -> None:
        async with slots:
            await asyncio.sleep(0)
            done.append(1)

    async def worker_b() -> None:
        await asyncio.gather(*(call() for _ in range(100)))

    workers = [threading.Thread(target=lambda: asyncio.run(worker_b())) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(done) == 300
    assert slots.free == 2


async def _hold(slots: Slots) -> None:
    async with slots:
        await asyncio.Event().wait()


def test_x07_a_second_job_with_another_limit_gets_its_own() -> None:
    first = ToolBox({"count": CountingTool({"max_concurrency": 1})}, DispatchLimits(max_concurrency=1))
    second = ToolBox({"count": CountingTool({"max_concurrency": 5})}, DispatchLimits(max_concurrency=7))
    assert first.slots is not None
    assert second.slots is not None
    assert (first.slots.count, second.slots.count) == (1, 7)
    limits = [box.tools["count"].slots for box in (first, second)]
    assert [slots.count for slots in limits if slots is not None] == [1, 5]


@pytest.mark.parametrize("workers", [1, 4])
def test_one_tool_serves_several_event_loops(workers: int) -> None:
    box = ToolBox({"count": CountingTool({"max_concurrency": 2})})
    texts: list[str | None] = []

    async def call(worker: int, i: int) -> None:
        async with box.trajectory(f"{worker}-{i}") as tools:
            texts.append((await tools.call(ToolCall(name="count", arguments={}), 0, 0)).response.text)

    async def work(worker: int) -> None:
        await asyncio.gather(*(call(worker, i) for i in range(20)))

    threads = [threading.Thread(target=lambda worker=worker: asyncio.run(work(worker))) for worker in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == ["1"] * 20 * workers
