"""What a call costs: CPU and wall milliseconds of the sandbox beside bare `python -c`, bubblewrap, and peers.

    python bench/sandbox.py [--calls 40] [--clients 4] [--url NAME=http://host:port] ...

CPU is that of the server with all its children, per call: on a shared machine wall times are noise. A peer is any
server that speaks SandboxFusion's `/run_code`; only its wall time can be seen from outside.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import shutil
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

import aiohttp
from cpu_meter import CpuMeter

from rollbox.sandbox.client import Sandbox
from rollbox.sandbox.interpreter import Interpreter
from rollbox.schemas.judge import JudgeRequest, StdioTest, TokensComparison
from rollbox.schemas.run import RunLimits, RunRequest

_TESTS = 100
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


@dataclass(frozen=True)
class Cost:
    """Milliseconds per call; `cpu_ms` is None where it cannot be seen."""

    cpu_ms: float | None
    wall_ms: float

    def __str__(self) -> str:
        cpu = "      -" if self.cpu_ms is None else f"{self.cpu_ms:7.1f}"
        return f"{cpu} /{self.wall_ms:8.1f}"


Call = Callable[[Workload], Awaitable[str]]


@dataclass(frozen=True)
class Load:
    """How often each workload is called, and by how many clients at a time."""

    calls: int
    clients: int


async def measure(call: Call, workload: Workload, load: Load, cpu_s: Callable[[], float] | None) -> Cost:
    """Call `load.calls` times, after a few that do not count. Raises: AssertionError: a wrong answer."""
    walls: list[float] = []

    async def client(numbers: Iterator[int]) -> None:
        for _ in numbers:
            started = time.perf_counter()
            output = await call(workload)
            walls.append(time.perf_counter() - started)
            assert output.strip() == workload.expected, f"{workload.name}: {output!r}"

    async def clients(calls: int) -> None:
        numbers = iter(range(calls))
        await asyncio.gather(*(client(numbers) for _ in range(load.clients)))

    await clients(2 * load.clients)
    walls.clear()
    before = cpu_s() if cpu_s else 0.0
    await clients(load.calls)
    cpu_ms = (cpu_s() - before) / load.calls * 1000 if cpu_s else None
    return Cost(cpu_ms, statistics.median(walls) * 1000)


def command_call(*before: str) -> Call:
    """A fresh interpreter for each call, started by the command `before`."""

    async def call(workload: Workload) -> str:
        command = [*before, sys.executable, "-c", workload.code]
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
        output, _ = await process.communicate((workload.stdin or "").encode())
        assert process.returncode == 0
        return output.decode()

    return call


def bwrap() -> list[str]:
    """Bubblewrap with everything unshared, and what the interpreter needs shown read-only."""
    shown = [option for path in Interpreter.current().binds for option in ("--ro-bind", path, path)]
    links = [option for name in ("bin", "lib", "lib64") for option in ("--symlink", f"usr/{name}", f"/{name}")]
    return ["bwrap", "--unshare-all", "--die-with-parent", "--new-session", *shown, *links, "--proc", "/proc"]


def own_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def rollbox_call(sandbox: Sandbox) -> Call:
    async def call(workload: Workload) -> str:
        request = RunRequest(code=workload.code, stdin=workload.stdin, limits=RunLimits(wall_s=60))
        return (await sandbox.run(request)).stdout

    return call


async def judge_cost(sandbox: Sandbox, cpu_s: Callable[[], float], requests: int = 10) -> Cost:
    """Per test: the contest program judged by 100 tests of its own numbers, in one request after the other."""
    workload = WORKLOADS[-1]
    stdin, expected = workload.stdin or "", workload.expected
    walls = []
    for number in range(requests + 1):
        tests = [StdioTest(stdin=stdin + " " * each, expected_stdout=expected) for each in range(_TESTS)]
        request = JudgeRequest(code=f"# {number}\n{workload.code}", tests=tests, comparison=TokensComparison())
        before, started = cpu_s(), time.perf_counter()
        result = await sandbox.judge(request)
        assert result.passed == _TESTS, result
        walls.append((cpu_s() - before, time.perf_counter() - started))
    cpu, wall = (statistics.median(each) / _TESTS * 1000 for each in zip(*walls[1:], strict=True))
    return Cost(cpu, wall)


def peer_call(session: aiohttp.ClientSession, url: str) -> Call:
    async def call(workload: Workload) -> str:
        body = {"code": workload.code, "language": "python", "stdin": workload.stdin or "", "run_timeout": 60}
        async with session.post(f"{url}/run_code", json=body) as response:
            return str((await response.json())["run_result"]["stdout"])

    return call


async def run(load: Load, peers: dict[str, str]) -> None:
    print(f"{'CPU ms / median wall ms per call':34}" + "".join(f"{w.name:>18}" for w in WORKLOADS))

    async def row(name: str, call: Call, cpu_s: Callable[[], float] | None) -> None:
        costs = [await measure(call, workload, load, cpu_s) for workload in WORKLOADS]
        print(f"{name:34}" + "".join(f"{cost!s:>18}" for cost in costs), flush=True)

    commands = CpuMeter(os.getpid())

    def commands_cpu_s() -> float:
        return commands.seconds() - own_cpu_s()

    await row("bare python -c", command_call(), commands_cpu_s)
    if shutil.which("bwrap"):
        await row("bwrap --unshare-all", command_call(*bwrap()), commands_cpu_s if commands.sees_orphans else None)
    commands.close()
    for kind in ("process", "zygote"):
        async with Sandbox.embedded(shared=False, pool=kind, preload="bare,math,data") as sandbox:
            assert sandbox.server_pid is not None
            meter = CpuMeter(sandbox.server_pid)
            await row(f"rollbox, {kind} pool", rollbox_call(sandbox), meter.seconds)
            if kind == "zygote":
                cost = await judge_cost(sandbox, meter.seconds)
                print(f"{'W6B: per test of 100, by /v1/judge':34}{cost!s:>18}", flush=True)
        meter.close()
    async with aiohttp.ClientSession() as session:
        for name, url in peers.items():
            await row(name, peer_call(session, url), None)


def main() -> None:
    parser = argparse.ArgumentParser(description="CPU and wall time per call of the sandbox.")
    parser.add_argument("--calls", type=int, default=40)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--url", action="append", default=[], metavar="NAME=URL", help="a server that speaks /run_code")
    options = parser.parse_args()
    asyncio.run(run(Load(options.calls, options.clients), dict(peer.split("=", 1) for peer in options.url)))


if __name__ == "__main__":
    main()
