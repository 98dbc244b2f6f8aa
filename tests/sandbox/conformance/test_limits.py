"""Each limit, and what happens at it."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from rollbox.sandbox.client import Sandbox
from rollbox.schemas.run import RunLimits, RunRequest

from ..conftest import RunCode

# Far from every limit here, and from what a busy machine adds: such a run was not ended by its limit.
LATE_MS = 20_000


async def test_s02_a_busy_loop_ends_at_its_limit(run: RunCode, cases: dict[str, Any]) -> None:
    case = cases["S02"]["input"]
    result = await run(f"print('before', flush=False)\n{case['code']}", wall_s=case["timeout_s"])
    assert (result.status, result.stdout, result.exit_code) == ("timeout", "before\n", None)
    assert 1000 <= result.run_ms < LATE_MS


async def test_s02_the_neighbours_of_a_busy_loop_do_not_wait(sandbox: Sandbox, cases: dict[str, Any]) -> None:
    busy = RunRequest(code=cases["S02"]["input"]["code"], limits=RunLimits(wall_s=100))
    looping = asyncio.create_task(sandbox.run(busy))
    neighbours = await asyncio.gather(*(sandbox.run(RunRequest(code="print(1)")) for _ in range(8)))
    assert [each.stdout for each in neighbours] == ["1\n"] * 8
    assert not looping.done()
    looping.cancel()
    await asyncio.gather(looping, return_exceptions=True)


async def test_wall_clock_counts_sleep(run: RunCode) -> None:
    result = await run("import time; print('in'); time.sleep(60)", wall_s=2)
    assert (result.status, result.stdout) == ("timeout", "in\n")
    assert 2000 <= result.run_ms < LATE_MS


@pytest.mark.beyond_run_code
async def test_cpu_seconds(run: RunCode) -> None:
    result = await run("while True: pass", cpu_s=1, wall_s=30)
    assert result.status == "timeout"
    assert 600 < result.cpu_ms < 2500  # the kernel holds the limit by its ticks, and measures more finely


@pytest.mark.beyond_run_code
async def test_cpu_seconds_of_a_program_that_ignores_the_warning(run: RunCode) -> None:
    ignoring = "import signal; signal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass"
    result = await run(ignoring, cpu_s=1, wall_s=30)
    assert (result.status, result.signal) == ("timeout", 9)


async def test_memory_of_one_process(run: RunCode) -> None:
    result = await run("x = bytearray(400 << 20)", memory_mb=256)
    assert (result.status, result.exit_code) == ("memory", 1)
    assert result.stderr.rstrip().endswith("MemoryError")


async def test_memory_error_of_numpy(run: RunCode) -> None:
    result = await run("import numpy; numpy.zeros((1 << 30, 64))", memory_mb=512)
    assert result.status == "memory"


@pytest.mark.beyond_run_code
async def test_memory_of_many_processes(run: RunCode) -> None:
    result = await run(
        """
import os, time
for _ in range(8):
    if os.fork() == 0:
        x = bytearray(os.urandom(1 << 20) * 60)
        time.sleep(30)
time.sleep(30)
""",
        memory_mb=256,
        wall_s=20,
    )
    assert result.status == "memory"
    assert result.run_ms < 15_000
    assert result.peak_memory_mb > 256


async def test_shared_pages_are_counted_once(run: RunCode) -> None:
    result = await run(
        """
import os, time
x = bytearray(os.urandom(1 << 20) * 80)
children = []
for _ in range(6):
    pid = os.fork()
    if pid == 0:
        time.sleep(0.5)
        os._exit(0)
    children.append(pid)
for pid in children: os.waitpid(pid, 0)
print('done')
""",
        memory_mb=256,
    )
    assert (result.status, result.stdout) == ("ok", "done\n")


@pytest.mark.beyond_run_code
async def test_a_fork_bomb_is_held(run: RunCode) -> None:
    bomb = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass"
    started = time.monotonic()
    result = await run(bomb, wall_s=1, processes=32)
    assert result.status == "timeout"
    assert time.monotonic() - started < 10
    assert (await run("print(1)")).stdout == "1\n"


@pytest.mark.beyond_run_code
async def test_number_of_processes(run: RunCode) -> None:
    forks = """
import os, time
made = 0
try:
    while True:
        if os.fork() == 0:
            time.sleep(30)
        made += 1
except BlockingIOError:
    print(made + 1)
"""
    assert (await run(forks, processes=5)).stdout == "5\n"


@pytest.mark.beyond_run_code
async def test_open_files(run: RunCode) -> None:
    result = await run("files = [open('/dev/null') for _ in range(100)]", open_files=32)
    assert "Too many open files" in result.stderr


@pytest.mark.beyond_run_code
async def test_size_of_a_file(run: RunCode) -> None:
    result = await run("open('big', 'wb').write(bytes(3 << 20))", file_size_mb=1)
    assert result.status == "error"
    assert "File too large" in result.stderr


@pytest.mark.beyond_run_code
async def test_the_work_dir_can_be_filled_and_nothing_else(run: RunCode) -> None:
    fill = """
import os
total = 0
try:
    for number in range(1000):
        with open(f"f{number}", "wb", buffering=0) as file:
            total += file.write(bytes(1 << 20))
except OSError as error:
    print(error.strerror)
print(total >> 20)
"""
    result = await run(fill, work_dir_mb=8)
    assert result.stdout in ("No space left on device\n7\n", "No space left on device\n8\n")
    assert (await run("open('x', 'w').write('fits'); print('ok')", work_dir_mb=8)).stdout == "ok\n"


async def test_empty_files_run_out_too(run: RunCode) -> None:
    result = await run("import os\nfor n in range(100_000): os.mknod(f'{n}')", wall_s=30)
    assert "No space left on device" in result.stderr


@pytest.mark.beyond_run_code
async def test_output_flood_ends_the_run(run: RunCode) -> None:
    started = time.monotonic()
    result = await run("import os\nwhile True: os.write(1, b'x' * 65536)", output_kill_mb=4, wall_s=60)
    assert result.status == "output_limit"
    assert result.stdout_bytes > 4 << 20
    assert len(result.stdout) < 70_000
    assert time.monotonic() - started < 20


@pytest.mark.beyond_run_code
async def test_cpu_time_of_children_is_counted(run: RunCode) -> None:
    result = await run("""
import subprocess, sys
subprocess.run([sys.executable, "-c", "import time\\nwhile time.process_time() < 0.6: pass"])
""")
    assert result.cpu_ms > 600
