"""The server's end of a slot, with a socket in place of init."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import ExitStack

import pytest

from rollbox.sandbox import zygote_pool
from rollbox.sandbox.capture import Capture
from rollbox.sandbox.jail import messages
from rollbox.sandbox.jail.frames import SlotOutcome
from rollbox.sandbox.slot import Slot
from rollbox.sandbox.zygote_pool import ZygotePool
from rollbox.schemas.errors import SandboxError
from rollbox.schemas.run import RunLimits, RunRequest

OUTCOME = SlotOutcome(reason="exit", wait_status=0, started_s=0.0, ended_s=0.1, cpu_s=0.1, peak_memory_bytes=1 << 20)


def _say_ready(init: socket.socket, number: int, held: ExitStack) -> None:
    server, child = socket.socketpair()
    pipes = [os.pipe(), os.pipe()]
    messages.send(init, messages.READY, number, (server.fileno(), pipes[0][0], pipes[1][0]))
    for fd in (server.detach(), *pipes[0], *pipes[1]):
        os.close(fd)
    held.enter_context(child)


async def _run(slot: Slot) -> float:
    streams = [Capture(1000, 1000, slot.end_run) for _ in range(2)]
    outcome = await slot.run(b"", fetch_files=[], stdout=streams[0], stderr=streams[1], wall_s=60)
    return outcome["ended_s"]


async def test_a_child_that_is_ready_before_the_last_run_is_wound_up() -> None:
    ours, init = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    runs: asyncio.Queue[asyncio.Task[float]] = asyncio.Queue()
    slot = Slot(ours, lambda each: runs.put_nowait(asyncio.create_task(_run(each))), lambda *_: None)
    with init, ExitStack() as held:
        _say_ready(init, 0, held)
        async with asyncio.timeout(10):
            for number in range(1, 20):
                run = await runs.get()
                await asyncio.sleep(0)
                messages.send(init, messages.ENDED, {**OUTCOME, "ended_s": float(number)})
                _say_ready(init, number, held)
                # In one turn of the loop: the last run's task has not been woken when the slot can have its next.
                slot._readable()
                slot._readable()
                assert await run == number
            last = await runs.get()
        slot.close()
        await asyncio.gather(last, return_exceptions=True)


async def test_a_word_out_of_turn_gives_the_slot_up() -> None:
    ours, init = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    lost: asyncio.Queue[object] = asyncio.Queue()
    Slot(ours, lambda _: None, lambda _, failure: lost.put_nowait(failure))
    with init:
        messages.send(init, messages.ENDED, OUTCOME)
        assert await lost.get() is None


async def test_a_run_that_we_lose_sight_of_comes_back_as_our_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(self: Slot, *_: object, **__: object) -> None:
        await asyncio.Event().wait()

    request = RunRequest(code="print(1)", limits=RunLimits(wall_s=0.1))
    async with ZygotePool(slots=1, queue=1) as pool:
        with monkeypatch.context() as patch:
            patch.setattr(Slot, "run", never)
            patch.setattr(zygote_pool, "_BACKSTOP_S", 0.2)
            with pytest.raises(SandboxError, match="was not over"):
                await pool.run(request)
            assert pool.info().running == 0
