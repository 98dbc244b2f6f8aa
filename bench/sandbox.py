"""What a call costs: CPU and wall milliseconds of the sandbox beside bare `python -c`, and of peers.

    python bench/sandbox.py [--calls 20] [--url NAME=http://host:port] ...

CPU is that of the server with all its children, per call: on a shared machine wall times are noise. A peer is any
server that speaks SandboxFusion's `/run_code`; only its wall time can be seen from outside.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from rollbox.sandbox.client import Sandbox
from rollbox.schemas.run import RunLimits, RunRequest

_CPUACCT = Path("/sys/fs/cgroup/cpuacct")
_CONTEST_PROGRAM = """
import sys
def longest_run(values):
    best = length = 1
    for left, right in zip(values, values[1:]):
        length = length + 1 if right >= left else 1
        best = max(best, length)
    return best
numbers = [int(word) for word in sys.stdin.read().split()[1:]]
seen, pairs = {}, 0
for number in numbers:
    pairs += seen.get(number % 9, 0)
    seen[number % 9] = seen.get(number % 9, 0) + 1
print(longest_run(numbers), pairs)
"""


@dataclass(frozen=True)
class Workload:
    """A program and what it must print."""

    name: str
    code: str
    expected: str
    stdin: str | None = None


WORKLOADS = (
    Workload("W1 print", "print(sum(range(10)))", "45"),
    Workload("W2 numpy", "import numpy\nprint(numpy.linalg.solve(numpy.eye(40) * 2, numpy.ones(40)).sum())", "20.0"),
    Workload("W3 sympy", "import sympy\nx = sympy.Symbol('x')\nprint(sympy.solve(x**2 - x - 12, x))", "[-3, 4]"),
    Workload("W4 pandas", "import pandas\nprint(pandas.DataFrame({'n': range(50)}).n.sum())", "1225"),
    Workload("W6 contest", _CONTEST_PROGRAM, "4 4", stdin="8\n3 5 5 9 1 12 14 2\n"),
)


class CpuMeter:
    """CPU seconds of a process and all its descendants, present and past."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._group: Path | None = _CPUACCT / f"rollbox-bench-{pid}"
        try:
            self._group.mkdir()
            (self._group / "cgroup.procs").write_text(str(pid))
        except OSError:
            self._group = None

    def seconds(self) -> float:
        if self._group is not None:
            return int((self._group / "cpuacct.usage").read_text()) / 1e9
        # Own and waited-for children's time. The server waits for each launcher, which waited for all below it.
        fields = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        if self._group is not None:
            self._group.rmdir()


@dataclass(frozen=True)
class Cost:
    """Milliseconds per call; `cpu_ms` is None where it cannot be seen."""

    cpu_ms: float | None
    wall_ms: float

    def __str__(self) -> str:
        cpu = "      -" if self.cpu_ms is None else f"{self.cpu_ms:7.1f}"
        return f"{cpu} /{self.wall_ms:8.1f}"


Call = Callable[[Workload], Awaitable[str]]


async def measure(call: Call, workload: Workload, calls: int, cpu_s: Callable[[], float] | None) -> Cost:
    """Call one after the other, after one that does not count. Raises: AssertionError: a wrong answer."""
    walls = []
    before = 0.0
    for number in range(calls + 1):
        if number == 1:
            before = cpu_s() if cpu_s else 0.0
        started = time.perf_counter()
        output = await call(workload)
        walls.append(time.perf_counter() - started)
        assert output.strip() == workload.expected, f"{workload.name}: {output!r}"
    cpu_ms = (cpu_s() - before) / calls * 1000 if cpu_s else None
    return Cost(cpu_ms, statistics.median(walls[1:]) * 1000)


async def bare(workload: Workload) -> str:
    """A fresh interpreter and nothing else."""
    text = workload.stdin or ""
    command = [sys.executable, "-c", workload.code]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def children_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def rollbox_call(sandbox: Sandbox) -> Call:
    async def call(workload: Workload) -> str:
        request = RunRequest(code=workload.code, stdin=workload.stdin, limits=RunLimits(wall_s=60))
        return (await sandbox.run(request)).stdout

    return call


def peer_call(session: aiohttp.ClientSession, url: str) -> Call:
    async def call(workload: Workload) -> str:
        body = {"code": workload.code, "language": "python", "stdin": workload.stdin or "", "run_timeout": 60}
        async with session.post(f"{url}/run_code", json=body) as response:
            return str((await response.json())["run_result"]["stdout"])

    return call


async def run(calls: int, peers: dict[str, str]) -> None:
    print(f"{'CPU ms / median wall ms per call':34}" + "".join(f"{w.name:>18}" for w in WORKLOADS))

    async def row(name: str, call: Call, cpu_s: Callable[[], float] | None) -> None:
        costs = [await measure(call, workload, calls, cpu_s) for workload in WORKLOADS]
        print(f"{name:34}" + "".join(f"{cost!s:>18}" for cost in costs), flush=True)

    await row("bare python -c", bare, children_cpu_s)
    async with Sandbox.embedded() as sandbox:
        assert sandbox.server_pid is not None
        meter = CpuMeter(sandbox.server_pid)
        kind = (await sandbox.info())["pool"]["kind"]
        await row(f"rollbox, {kind} pool", rollbox_call(sandbox), meter.seconds)
    meter.close()
    async with aiohttp.ClientSession() as session:
        for name, url in peers.items():
            await row(name, peer_call(session, url), None)


def main() -> None:
    parser = argparse.ArgumentParser(description="CPU and wall time per call of the sandbox.")
    parser.add_argument("--calls", type=int, default=20)
    parser.add_argument("--url", action="append", default=[], metavar="NAME=URL", help="a server that speaks /run_code")
    options = parser.parse_args()
    asyncio.run(run(options.calls, dict(peer.split("=", 1) for peer in options.url)))


if __name__ == "__main__":
    main()
