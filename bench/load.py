"""Load on a sandbox server: many connections at once, every answer checked, nothing left behind.

    python bench/load.py --calls 5000 --connections 1000

Each call prints a text of its own, so that an answer that belongs to another call is noticed. Queue time and run time
are reported apart, with the server's memory, and what is left of processes, mounts and temporary files at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
import uuid
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from rollbox.sandbox.client import Sandbox

_MARK = uuid.uuid4().hex.encode()


@dataclass
class Tally:
    """What came back. Times in milliseconds."""

    statuses: Counter[str] = field(default_factory=Counter)
    wrong: int = 0
    queue_ms: list[float] = field(default_factory=list)
    run_ms: list[float] = field(default_factory=list)
    peak_rss_mb: float = 0.0


async def main() -> None:
    options = _options()
    mounts, files = _mounts(), _temporary_files()
    os.environb[b"ROLLBOX_LOAD"] = _MARK
    tally = Tally()
    async with Sandbox.embedded(queue=options.calls) as sandbox:
        assert sandbox.server_pid is not None
        watch = asyncio.create_task(_watch_memory(sandbox.server_pid, tally))
        started = time.perf_counter()
        await _send(sandbox.url, options.calls, options.connections, tally)
        wall_s = time.perf_counter() - started
        watch.cancel()
    print(f"{options.calls} calls over {options.connections} connections in {wall_s:.1f} s")
    print(f"answers: {dict(tally.statuses)}; of another call: {tally.wrong}")
    print(f"queue ms: {_percentiles(tally.queue_ms)}")
    print(f"run ms:   {_percentiles(tally.run_ms)}")
    print(f"server process, peak resident: {tally.peak_rss_mb:.0f} MB")
    print(
        f"left behind: {_marked_processes()} processes, {len(_mounts() - mounts)} mounts, "
        f"{len(_temporary_files() - files)} temporary files"
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=5000)
    parser.add_argument("--connections", type=int, default=1000)
    return parser.parse_args()


async def _send(url: str, calls: int, connections: int, tally: Tally) -> None:
    waiting = iter(range(calls))
    connector = aiohttp.TCPConnector(limit=connections)
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:

        async def send_from_one_connection() -> None:
            for number in waiting:
                await _call(session, url, number, tally)

        await asyncio.gather(*(send_from_one_connection() for _ in range(connections)))


async def _call(session: aiohttp.ClientSession, url: str, number: int, tally: Tally) -> None:
    expected = f"call {number} of this load"
    try:
        async with session.post(f"{url}/v1/run", json={"code": f"print({expected!r})"}) as answer:
            body = await answer.json(content_type=None)
    except (aiohttp.ClientError, ValueError) as error:
        tally.statuses[f"lost: {type(error).__name__}"] += 1
        return
    tally.statuses[body["status"] if answer.status == 200 else str(answer.status)] += 1
    if answer.status == 200:
        tally.wrong += body["stdout"] != expected + "\n"
        tally.queue_ms.append(body["queue_ms"])
        tally.run_ms.append(body["run_ms"])


async def _watch_memory(pid: int, tally: Tally) -> None:
    page_mb = os.sysconf("SC_PAGE_SIZE") / 1e6
    while True:
        resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        tally.peak_rss_mb = max(tally.peak_rss_mb, resident * page_mb)
        await asyncio.sleep(0.2)


def _percentiles(values: list[float]) -> str:
    ordered = sorted(values)
    if not ordered:
        return "no answers"
    return ", ".join(f"p{p} {ordered[min(len(ordered) - 1, p * len(ordered) // 100)]:.1f}" for p in (50, 90, 99, 100))


def _marked_processes() -> int:
    """Processes that inherited this one's mark, whoever their parent is now, without this one."""
    found = 0
    for environ in Path("/proc").glob("[0-9]*/environ"):
        try:
            found += _MARK in environ.read_bytes() and environ.parent.name != str(os.getpid())
        except OSError:
            continue
    return found


def _mounts() -> set[str]:
    return set(Path("/proc/self/mountinfo").read_text().splitlines())


def _temporary_files() -> set[str]:
    return set(os.listdir(tempfile.gettempdir()))


if __name__ == "__main__":
    asyncio.run(main())
