"""Many calls at a time: none lost, none with another's answer, nothing left. The full size is in bench/load.py."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import aiohttp
import pytest

from .server_process import serving, until

CALLS, CONNECTIONS = 600, 200


async def _ask(http: aiohttp.ClientSession, numbers: asyncio.Queue[int], answers: dict[int, str]) -> None:
    while not numbers.empty():
        number = numbers.get_nowait()
        code = f"import os\nprint(int(input()) + {number}, os.listdir('/workspace'), os.listdir('/dev/shm'))"
        async with http.post("/v1/run", json={"code": code, "stdin": str(number)}) as response:
            assert response.status == 200, await response.text()
            answers[number] = (await response.json())["stdout"]


@pytest.mark.timeout(300)
async def test_no_call_is_lost_or_answered_with_anothers_output() -> None:
    with serving("--slots", "4", "--queue", str(CALLS)) as server:
        mounts = _mounts()
        numbers: asyncio.Queue[int] = asyncio.Queue()
        for number in range(CALLS):
            numbers.put_nowait(number)
        answers: dict[int, str] = {}
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(server.url, connector=connector) as http:
            await asyncio.gather(*(_ask(http, numbers, answers) for _ in range(CONNECTIONS)))
        assert answers == {number: f"{2 * number} ['main.py'] []\n" for number in range(CALLS)}
        assert _mounts() == mounts
        # Connections, the slots' descriptors, and little more.
        await until(lambda: len(os.listdir(f"/proc/{server.process.pid}/fd")) < 60)
        await until(lambda: _zombies(server.process.pid) == [])


def _mounts() -> int:
    return Path("/proc/self/mountinfo").read_text().count("\n")


def _zombies(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in map(int, (task / "children").read_text().split()):
            try:
                state = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0]
            except FileNotFoundError:
                continue
            found += [child] if state == "Z" else _zombies(child)
    return found
