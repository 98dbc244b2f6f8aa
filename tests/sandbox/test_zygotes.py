"""Zygotes: which is chosen, and what happens when one is killed."""

from __future__ import annotations

import asyncio
import os
import signal
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rollbox.sandbox.imports import tier_of
from rollbox.sandbox.zygote_pool import ZygotePool
from rollbox.schemas.errors import SandboxError
from rollbox.schemas.run import RunLimits, RunRequest, RunResult

from .server_process import processes_with, until

SLEEP = "import time; time.sleep(300)"


@pytest.mark.parametrize(
    ("code", "tier"),
    [
        ("print(1)", "bare"),
        ("import numpy as np", "math"),
        ("def f():\n    from sympy.abc import x", "math"),
        ("import pandas, numpy", "data"),
        ("import scipy.stats", "data"),
        ("# import pandas\nprint('import numpy')", "bare"),
        ("from .numpy import x", "bare"),
        ("import numpy as (", "bare"),
        ("import pandas\n" + "x = 1\n" * 20_000, "data"),
        ("import numpy\n" + "(" * 5000, "bare"),
    ],
)
def test_the_tier_follows_the_imports(code: str, tier: str) -> None:
    assert tier_of(code) == tier


@pytest.mark.parametrize("package", ["numpy", "sympy", "pandas", "scipy"])
async def test_a_tier_leaves_room_under_the_usual_memory_limits(pool: ZygotePool, package: str) -> None:
    """What its packages only reserve (pyarrow's allocators: a gigabyte) must not send programs to a bare zygote."""
    code = f"import os, sys\nprint({package!r} in sys.modules, len(os.listdir('/proc/self/task')))\nimport {package}"
    for memory_mb in (320, 1024):
        # The first run may start the zygote, of which nothing is known before.
        for _ in range(2):
            result = await pool.run(RunRequest(code=code, limits=RunLimits(wall_s=60, memory_mb=memory_mb)))
        assert (result.status, result.stdout) == ("ok", "True 1\n"), result


@pytest.fixture
async def pool() -> AsyncIterator[ZygotePool]:
    async with ZygotePool(slots=2, queue=10) as open_pool:
        yield open_pool


def _request(code: str, *args: str) -> RunRequest:
    return RunRequest(code=code, args=list(args), limits=RunLimits(wall_s=60))


async def _running(pool: ZygotePool, marker: str) -> asyncio.Task[RunResult]:
    task = asyncio.create_task(pool.run(_request(SLEEP, marker)))
    await until(lambda: len(processes_with(marker)) == 1)
    return task


def _ancestors(pid: int) -> list[int]:
    """From the parent upwards, to this process."""
    found: list[int] = []
    while pid != os.getpid():
        with open(f"/proc/{pid}/stat") as file:
            pid = int(file.read().rpartition(")")[2].split()[1])
        found.append(pid)
    return found[:-1]


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def _exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def test_a_killed_zygote_takes_only_its_own_runs_and_is_replaced(pool: ZygotePool) -> None:
    marker = f"marker-{uuid.uuid4()}"
    assert (await pool.run(_request("import numpy; print(numpy.__name__)"))).stdout == "numpy\n"
    doomed = await _running(pool, marker)
    other = asyncio.create_task(pool.run(_request("import numpy, time; time.sleep(1); print('unharmed')")))
    init, zygote, *_ = _ancestors(processes_with(marker)[0])
    os.kill(zygote, signal.SIGKILL)
    with pytest.raises(SandboxError, match="lost"):
        await doomed
    assert (await other).stdout == "unharmed\n"
    assert processes_with(marker) == []
    assert not _exists(init)
    assert (await pool.run(_request("print('again')"))).stdout == "again\n"


async def test_a_killed_slot_takes_only_its_own_run(pool: ZygotePool) -> None:
    markers = [f"marker-{uuid.uuid4()}" for _ in range(2)]
    doomed, other = [await _running(pool, marker) for marker in markers]
    init, zygote, *_ = _ancestors(processes_with(markers[0])[0])
    os.kill(init, signal.SIGKILL)
    with pytest.raises(SandboxError, match="lost"):
        await doomed
    assert not other.done()
    other.cancel()
    await asyncio.gather(other, return_exceptions=True)
    assert processes_with(markers[1]) == []
    for _ in range(4):
        assert (await pool.run(_request("print('again')"))).stdout == "again\n"
    # No zombie is left of the killed init.
    await until(lambda: "Z" not in [_state(child) for child in _children(zygote)])


async def test_a_killed_ready_child_is_not_seen_by_callers(pool: ZygotePool) -> None:
    assert (await pool.run(_request("print(1)"))).stdout == "1\n"
    marker = f"marker-{uuid.uuid4()}"
    running = await _running(pool, marker)
    _, zygote, *_ = _ancestors(processes_with(marker)[0])
    for init in _children(zygote):
        for child in set(_children(init)) - set(processes_with(marker)):
            os.kill(child, signal.SIGKILL)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    for _ in range(6):
        assert (await pool.run(_request("print('fine')"))).stdout == "fine\n"


async def test_closing_the_pool_leaves_no_process() -> None:
    marker = f"marker-{uuid.uuid4()}"
    async with ZygotePool(slots=2, queue=1) as pool:
        running = await _running(pool, marker)
        family = _ancestors(processes_with(marker)[0])
    with pytest.raises(SandboxError):
        await running
    assert processes_with(marker) == []
    assert not any(_exists(pid) for pid in family)
