"""While an attack goes on, programs in other slots and the server itself do not suffer."""

from __future__ import annotations

import ast
import asyncio
import uuid
from collections.abc import Iterator

import aiohttp
import pytest

from rollbox.sandbox import imports
from rollbox.sandbox.client import Sandbox
from rollbox.schemas.run import RunLimits, RunRequest

from ..server_process import ServerProcess, processes_with, serving, until

HELD = "open('/workspace/held', 'w').close()\nimport time\nprint('held', flush=True)\ntime.sleep(300)"
ATTACKS = {
    "descriptors in flight": f"""
import array, os, socket
fd, pairs = os.open("/dev/null", os.O_RDONLY), []
try:
    while True:
        pairs.append(socket.socketpair())
        pairs[-1][0].setblocking(False)
        try:
            while True:
                pairs[-1][0].sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd] * 250))])
        except BlockingIOError:
            pass
except OSError:
    pass
{HELD}""",
    "processes": f"""
import os, time
try:
    while os.fork(): pass
except OSError:
    pass
else:
    time.sleep(300)
{HELD}""",
    "signals": f"""
import ctypes, os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, [40])
while ctypes.CDLL(None).sigqueue(os.getpid(), 40, 0) == 0: pass
{HELD}""",
    "pipes": f"""
import fcntl, os
held = []
try:
    while True:
        held.append(os.pipe())
        try: fcntl.fcntl(held[-1][1], 1031, 1 << 20)
        except OSError: pass
except OSError:
    pass
for pair in held[:4]:
    for fd in pair: os.close(fd)
{HELD}""",
}
NEIGHBOUR = """
import os, signal, subprocess, threading
signal.pthread_sigmask(signal.SIG_BLOCK, [40]); os.kill(os.getpid(), 40)
thread = threading.Thread(target=print, args=("thread",)); thread.start(); thread.join()
print(subprocess.run(["echo", "child"], capture_output=True, text=True).stdout.strip())
"""


@pytest.fixture(scope="module")
def two_slots() -> Iterator[ServerProcess]:
    with serving("--slots", "2") as server:
        yield server


@pytest.mark.parametrize("name", ATTACKS)
async def test_a_neighbour_has_what_it_needs(two_slots: ServerProcess, name: str) -> None:
    marker = f"marker-{uuid.uuid4()}"
    limits = RunLimits(open_files=65_536, processes=512, wall_s=100)
    attack = RunRequest(code=ATTACKS[name], args=[marker], limits=limits)
    async with Sandbox.connect(two_slots.url, max_retries=0) as sandbox:
        attacking = asyncio.create_task(sandbox.run(attack))
        await until(lambda: _is_held(marker), within_s=60)
        for _ in range(5):
            result = await sandbox.run(RunRequest(code=NEIGHBOUR))
            assert (result.status, result.stdout) == ("ok", "thread\nchild\n"), result
        assert not attacking.done()
        attacking.cancel()
        await asyncio.gather(attacking, return_exceptions=True)
        await until(lambda: processes_with(marker) == [])


def _is_held(marker: str) -> bool:
    """Whether the program has taken what it could, which it says by a file in its own root."""
    for pid in processes_with(marker):
        try:
            with open(f"/proc/{pid}/root/workspace/held"):
                return True
        except OSError:
            continue
    return False


async def test_the_server_answers_while_it_is_flooded(two_slots: ServerProcess) -> None:
    flood = {"code": "import os\nwhile True: os.write(1, b'\\xff' * 65536); os.write(2, b'\\xfe' * 65536)"}
    limits = {"output_bytes": 4 << 20, "output_kill_mb": 64, "wall_s": 60}
    async with aiohttp.ClientSession(two_slots.url) as http:
        posts = [asyncio.create_task(http.post("/v1/run", json={**flood, "limits": limits})) for _ in range(2)]
        while not all(post.done() for post in posts):
            async with http.get("/v1/health") as response:
                assert response.status == 200
        for post in posts:
            async with post.result() as response:
                assert (await response.json())["status"] == "output_limit"


@pytest.mark.parametrize("code", ["import numpy\nimport a" + ".a" * 30_000, "import numpy\n" + "x = 1\n" * 20_000])
def test_a_program_that_is_slow_to_parse_is_not_parsed(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("parsed")

    monkeypatch.setattr(ast, "parse", refuse)
    assert imports.tier_of(code) == "math"
