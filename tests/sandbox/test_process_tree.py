"""Nothing outlives a call: not a daemon, not after a disconnect, not after the server's own death."""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

from rollbox.sandbox.client import Sandbox
from rollbox.schemas.run import RunLimits, RunRequest

from .conftest import RunCode
from .server_process import ServerProcess, below, processes_with, serving, until

SLEEPER = "import time; print('started'); time.sleep(300)"


@pytest.fixture
def marker() -> str:
    return f"marker-{uuid.uuid4()}"


async def test_s03_a_grandchild_that_holds_the_pipe(run: RunCode, cases: dict[str, Any]) -> None:
    case = cases["S03"]["input"]
    code = case["code"].replace("'30'", "'30.125'")
    result = await run(code, wall_s=case["timeout_s"])
    assert (result.status, result.stdout) == ("ok", "parent done\n")
    assert result.run_ms < 20_000  # the grandchild would hold the pipe for 30 s
    assert processes_with("30.125") == []


async def test_timeout_kills_the_whole_tree(run: RunCode, marker: str) -> None:
    fork = "import os, time\nfor _ in range(3): os.fork()"
    code = f"{fork}\nos.setsid() if os.getpgrp() != os.getpid() else None\ntime.sleep(300)"
    assert (await run(code, args=[marker], wall_s=2)).status == "timeout"
    assert processes_with(marker) == []


async def test_a_disconnected_client_frees_its_slot(marker: str) -> None:
    with serving("--slots", "1", "--queue", "0") as server:
        async with Sandbox.connect(server.url, max_retries=0) as sandbox:
            running = asyncio.create_task(sandbox.run(RunRequest(code=SLEEPER, args=[marker])))
            await until(lambda: len(processes_with(marker)) == 1)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            await until(lambda: processes_with(marker) == [])
            assert (await sandbox.run(RunRequest(code="print(1)"), deadline_s=30)).stdout == "1\n"


async def test_a_disconnect_while_queued_leaves_the_queue(marker: str) -> None:
    with serving("--slots", "1", "--queue", "1") as server:
        async with Sandbox.connect(server.url) as sandbox:
            first = asyncio.create_task(sandbox.run(RunRequest(code=SLEEPER, args=[marker])))
            await until(lambda: len(processes_with(marker)) == 1)
            queued = asyncio.create_task(sandbox.run(RunRequest(code="print(2)")))
            await _until_waiting(sandbox, 1)
            queued.cancel()
            await _until_waiting(sandbox, 0)
            first.cancel()
            await asyncio.gather(first, queued, return_exceptions=True)
            assert (await sandbox.run(RunRequest(code="print(3)"), deadline_s=30)).stdout == "3\n"


async def _until_waiting(sandbox: Sandbox, number: int) -> None:
    deadline = time.monotonic() + 20
    while (await sandbox.info())["pool"]["waiting"] != number:
        assert time.monotonic() < deadline


async def _start_sleepers(server: ServerProcess, marker: str, number: int) -> list[asyncio.Task[Any]]:
    async def one() -> None:
        async with Sandbox.connect(server.url, max_retries=0) as sandbox:
            await sandbox.run(RunRequest(code=SLEEPER, args=[marker], limits=RunLimits(wall_s=300)))

    tasks = [asyncio.create_task(one()) for _ in range(number)]
    await until(lambda: len(processes_with(marker)) == number)
    return tasks


@pytest.mark.parametrize("how", ["kill", "lifeline"])
async def test_nothing_is_left_when_the_server_dies(how: str, marker: str) -> None:
    with serving("--slots", "3") as server:
        tasks = await _start_sleepers(server, marker, 3)
        ours = _jail_processes() & set(below(server.process.pid))
        assert ours
        if how == "kill":
            server.process.kill()
        else:
            server.let_go()
        await until(lambda: processes_with(marker) == [])
        await asyncio.to_thread(server.process.wait, 30)
        await asyncio.gather(*tasks, return_exceptions=True)
        await until(lambda: not ours & _jail_processes())


def _jail_processes() -> set[int]:
    """Spawners, zygotes, their slots and ready children, of all servers of this machine."""
    return {*processes_with("jail.spawner"), *processes_with("jail.zygote")}


async def test_no_descriptor_process_or_mount_is_left_after_many_runs(server: ServerProcess, run: RunCode) -> None:
    def held() -> tuple[int, int]:
        return len(os.listdir(f"/proc/{server.process.pid}/fd")), Path("/proc/self/mountinfo").read_text().count("\n")

    async def run_some() -> None:
        await asyncio.gather(*(run(code) for code in ("print(1)", "1/0", "import os; os.kill(os.getpid(), 9)")))

    for _ in range(5):
        await run_some()
    descriptors, mounts = held()
    for _ in range(20):
        await run_some()
    # All four slots may have been made only now: each has its channel, and the three descriptors of its ready child.
    # One descriptor left by one kind of run would be more.
    await until(lambda: held()[0] <= descriptors + 4 * 4 and held()[1] <= mounts)
