"""Load: many connections at a time on one server, every answer checked; then how fast a disconnect frees a slot.

    python bench/load.py [--calls 5000] [--connections 1000] [--slots N] [--workers N] [--keys]

With --keys every call has an idempotency key, so that a worker passes it on to another unless it is its own.

Prints what was lost or mixed up (nothing may be), queue and run times apart, the server's memory, and what is left.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import time
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import aiohttp

from rollbox.sandbox.client import Sandbox

CODE = "import sys\nnumber = int(input())\nprint(number * 2, sum(range(number % 1000)))"


def expected(number: int) -> str:
    return f"{number * 2} {sum(range(number % 1000))}\n"


def resident_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def cpu_s(pid: int) -> float:
    """CPU time of a server, and of its workers; not of zygotes and programs."""
    servers = [pid, *(child for child, _ in below(pid) if "rollbox.sandbox.serve" in command_line(child))]
    ticks = 0
    for each in servers:
        fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])  # utime, stime
    return ticks / os.sysconf("SC_CLK_TCK")


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except OSError:
        return ""


def below(pid: int) -> list[tuple[int, str]]:
    """All processes below one, with their states."""
    found: list[tuple[int, str]] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in map(int, (task / "children").read_text().split()):
            try:
                state = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0]
                found += [(child, state), *below(child)]
            except FileNotFoundError:
                continue
    return found


async def load(url: str, pid: int, calls: int, connections: int, keys: bool) -> None:
    numbers = iter(range(calls))
    outcomes: Counter[str] = Counter()
    results: list[dict[str, Any]] = []
    peak_mb = 0.0

    async def client(http: aiohttp.ClientSession) -> None:
        nonlocal peak_mb
        for number in numbers:
            body = {"code": CODE, "stdin": str(number), **({"idempotency_key": uuid.uuid4().hex} if keys else {})}
            async with http.post("/v1/run", json=body) as response:
                answer = await response.json()
            if response.status != 200:
                outcomes[f"HTTP {response.status}"] += 1
                continue
            outcomes["right" if answer["stdout"] == expected(number) else "WRONG"] += 1
            results.append(answer)
            peak_mb = max(peak_mb, resident_mb(pid))

    before_mb = resident_mb(pid)
    before_s = cpu_s(pid)
    started = time.perf_counter()
    timeout = aiohttp.ClientTimeout(total=None)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(url, connector=connector, timeout=timeout) as http:
        await asyncio.gather(*(client(http) for _ in range(connections)))
    took_s = time.perf_counter() - started
    spent_ms = (cpu_s(pid) - before_s) * 1000 / calls
    print(f"{calls} calls, {connections} connections: {dict(outcomes)}, {calls / took_s:.0f}/s")
    print(f"  CPU of the server processes themselves: {spent_ms:.2f} ms a call")
    for phase in ("queue_ms", "start_ms", "run_ms"):
        values = sorted(result[phase] for result in results)
        print(f"  {phase:9} p50 {statistics.median(values):8.1f}  p99 {values[int(len(values) * 0.99)]:8.1f}")
    print(f"  server resident: {before_mb:.0f} MB before, {peak_mb:.0f} at most, {resident_mb(pid):.0f} after")


async def disconnects(url: str, times: int) -> None:
    """With one program per slot, how long after a disconnect the next program has a slot."""
    waits_ms = []
    async with Sandbox.connect(url) as sandbox:
        slots = (await sandbox.info())["pool"]["slots"]
        for _ in range(times):
            writers = []
            for _ in range(slots):
                _, writer = await asyncio.open_connection(*url.removeprefix("http://").split(":"))
                body = json.dumps({"code": "import time; time.sleep(60)", "limits": {"wall_s": 60}})
                writer.write(f"POST /v1/run HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
                writers.append(writer)
            while (await sandbox.info())["pool"]["running"] < slots:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)
            started = time.perf_counter()
            for writer in writers:
                writer.transport.abort()
            while (await sandbox.info())["pool"]["running"]:
                pass
            waits_ms.append((time.perf_counter() - started) * 1000)
    print(f"a disconnect frees its slot after: p50 {statistics.median(waits_ms):.1f} ms, most {max(waits_ms):.1f} ms")


async def run(calls: int, connections: int, slots: int, workers: int, keys: bool) -> None:
    mounts = Path("/proc/self/mountinfo").read_text().count("\n")
    async with Sandbox.embedded(shared=False, slots=slots, queue=2 * connections, workers=workers) as sandbox:
        pid = sandbox.server_pid
        assert pid is not None
        await load(sandbox.url, pid, calls, connections, keys)
        if workers == 1:  # else as many programs as slots need not have a slot each
            await disconnects(sandbox.url, 20)
        states = Counter(state for _, state in below(pid))
        descriptors = len(os.listdir(f"/proc/{pid}/fd"))
        new_mounts = Path("/proc/self/mountinfo").read_text().count("\n") - mounts
        print(f"  left: processes by state {dict(states)}, {descriptors} descriptors, {new_mounts} mounts")


def main() -> None:
    parser = argparse.ArgumentParser(description="Load on one sandbox server.")
    parser.add_argument("--calls", type=int, default=5000)
    parser.add_argument("--connections", type=int, default=1000)
    parser.add_argument("--slots", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--keys", action="store_true")
    options = parser.parse_args()
    asyncio.run(run(options.calls, options.connections, options.slots, options.workers, options.keys))


if __name__ == "__main__":
    main()
