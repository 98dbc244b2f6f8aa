"""What sessions cost: CPU per turn, the time of a fork beside a plain one, and memory and answers of many at a time.

    python bench/sessions.py [--turns 400] [--forks 40] [--sessions 500] [--clients 100]

CPU is that of the server with all its children. Every answer is checked; a wrong one ends the benchmark.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import statistics
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from cpu_meter import CpuMeter, below

from rollbox.sandbox.client import Sandbox
from rollbox.sandbox.session_client import SandboxSession
from rollbox.schemas.session import SessionRequest

TURNS = (
    ("x = 41", ""),
    ("import json, math\ndef f(n):\n    return math.factorial(n) % 1000007", ""),
    ("x += 1\nprint(x)", "42\n"),
    ("print(f(20))", f"{math.factorial(20) % 1000007}\n"),
    ("print(json.dumps({'x': x, 'f': f(5)}))", '{"x": 42, "f": 120}\n'),
)
"""The workload W5: state that is built up over five turns."""
FORK_TIMES = """
import os, time
def fork_times(n):
    times = []
    for _ in range(n):
        read, write = os.pipe()
        started = time.perf_counter()
        pid = os.fork()
        if pid == 0:
            os.write(write, b"!")
            os._exit(0)
        os.read(read, 1)
        times.append(time.perf_counter() - started)
        os.waitpid(pid, 0); os.close(read); os.close(write)
    return times
"""
"""Plain forks, until the child has said something: a session's fork is over when the copy is ready, too."""
TIERS: dict[str, list[str]] = {"bare": [], "math": ["sympy"], "data": ["pandas"]}


def p50_ms(seconds: Iterable[float]) -> float:
    return statistics.median(seconds) * 1000


async def cost_of_turns(sandbox: Sandbox, meter: CpuMeter, turns: int) -> None:
    """CPU per turn of W5, with opening and closing the sessions in it."""
    sessions = turns // len(TURNS)

    async def one() -> None:
        async with await sandbox.create_session() as session:
            for code, expected in TURNS:
                result = await session.run(code)
                assert result.stdout == expected, result

    await asyncio.gather(*(one() for _ in range(4)))
    before_s, walls = meter.seconds(), []
    for _ in range(sessions):
        started = time.perf_counter()
        await one()
        walls.append(time.perf_counter() - started)
    cpu_ms = (meter.seconds() - before_s) / (sessions * len(TURNS)) * 1000
    print(f"W5, {sessions} sessions: {cpu_ms:.1f} ms CPU per turn, {p50_ms(walls) / len(TURNS):.1f} ms wall (median)")


async def cost_of_forks(sandbox: Sandbox, forks: int) -> None:
    """Forks of a session, as its client sees them, beside forks of the same process by itself."""
    for tier, packages in TIERS.items():
        async with await sandbox.create_session(SessionRequest(packages=packages)) as session:
            await session.run(
                FORK_TIMES + "".join(f"import {name}\n" for name in packages) + "state = list(range(1000))"
            )
            plain: list[float] = []
            ours: list[float] = []
            await (await session.fork(1))[0].close()
            for _ in range(forks):
                answer = await session.run("fork_times(3)")
                plain += eval(answer.last_expression or "[]")
                started = time.perf_counter()
                [copy] = await session.fork(1)
                ours.append(time.perf_counter() - started)
                await copy.close()
            started = time.perf_counter()
            made = await session.fork(8)
            eight_ms = (time.perf_counter() - started) * 1000
            for copy in made:
                await copy.close()
            ratio = p50_ms(ours) / p50_ms(plain)
            print(
                f"fork, {tier:4}: plain {p50_ms(plain):.2f} ms, session {p50_ms(ours):.2f} ms = {ratio:.1f} x (p50), "
                f"8 copies in one request {eight_ms / 8:.2f} ms each"
            )


async def many(sandbox: Sandbox, pid: int, sessions: int, clients: int) -> None:
    """All sessions are open at once, and take their turns in between those of the others."""
    numbers = iter(range(sessions))
    outcomes: Counter[str] = Counter()
    opened: list[tuple[int, SandboxSession]] = []
    before_mb = proportional_mb(pid)

    async def open_some(client: int) -> None:
        for number in numbers:
            session = await sandbox.create_session(SessionRequest(client=f"client {client}"))
            opened.append((number, session))

    started = time.perf_counter()
    await asyncio.gather(*(open_some(client) for client in range(clients)))
    opening_s = time.perf_counter() - started
    cells = [("x = {}; import os; os.environ['N'] = str(x); open('n', 'w').write(str(x))", "")]
    cells += [("x += 1", ""), ("def f(y): return x * 1000 + y", ""), ("print(f(7))", "{}007\n")]
    cells += [("print(x, open('n').read(), os.environ['N'])", "{} {} {}\n")]

    async def turn(client: int, step: int) -> None:
        for number, session in opened[client::clients]:
            code, expected = cells[step]
            wanted = expected.format(number + 1, number, number)
            result = await session.run(code.replace("{}", str(number)))
            outcomes["right" if (result.status, result.stdout) == ("ok", wanted) else f"WRONG {result}"] += 1

    started = time.perf_counter()
    for step in range(len(cells)):
        await asyncio.gather(*(turn(client, step) for client in range(clients)))
    took_s = time.perf_counter() - started
    each_mb = (proportional_mb(pid) - before_mb) / sessions
    print(f"{sessions} sessions of {len(cells)} turns from {clients} clients: {dict(outcomes)}")
    print(f"  opened at {sessions / opening_s:.0f}/s, {sessions * len(cells) / took_s:.0f} turns/s")
    print(f"  memory per idle session: {each_mb:.2f} MB (proportional set size: shared pages are counted once)")
    await asyncio.gather(*(session.close() for _, session in opened))
    assert set(outcomes) == {"right"}, outcomes


def proportional_mb(pid: int) -> float:
    total_kb = 0
    for each in below(pid):
        try:
            lines = Path(f"/proc/{each}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total_kb += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total_kb / 1024


async def run(turns: int, forks: int, sessions: int, clients: int) -> None:
    async with Sandbox.embedded(shared=False, preload="bare,math,data", queue=clients) as sandbox:
        pid = sandbox.server_pid
        assert pid is not None
        meter = CpuMeter(pid)
        await cost_of_turns(sandbox, meter, turns)
        await cost_of_forks(sandbox, forks)
        await many(sandbox, pid, sessions, clients)
    meter.close()


def main() -> None:
    parser = argparse.ArgumentParser(description="What sessions cost.")
    parser.add_argument("--turns", type=int, default=400)
    parser.add_argument("--forks", type=int, default=40)
    parser.add_argument("--sessions", type=int, default=500)
    parser.add_argument("--clients", type=int, default=100)
    options = parser.parse_args()
    asyncio.run(run(options.turns, options.forks, options.sessions, options.clients))


if __name__ == "__main__":
    main()
