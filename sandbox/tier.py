"""Tier: one zygote, restarted when it dies, and its slots with ready children."""

from __future__ import annotations

import asyncio
from collections import deque

from ..schemas.errors import RollboxError, SandboxError
from .failures import explained
from .family import Family
from .jail.frames import Failure
from .slot import Slot
from .zygote import JailParts, Zygote

_ATTEMPTS = 3


class Tier:
    """Hands out slots whose child is ready. At most `most` slots exist at a time."""

    def __init__(self, name: str, parts: JailParts, most: int) -> None:
        self.name = name
        self._parts = parts
        self._most = most
        self._zygote: Zygote | None = None
        self._starting: asyncio.Task[Zygote] | None = None
        self._stopping: set[asyncio.Task[None]] = set()
        self._slots: set[Slot] = set()
        self._idle: deque[Slot] = deque()
        self._waiting: deque[asyncio.Future[Slot]] = deque()

    @property
    def zygote(self) -> Zygote | None:
        """The zygote, once it serves."""
        return self._zygote

    def warm_up(self) -> asyncio.Task[Zygote] | None:
        """Begin to start the zygote, if there is none. The task ends when it serves."""
        if self._zygote is None and self._starting is None:
            self._starting = asyncio.create_task(self._start())
            self._starting.add_done_callback(self._started)
        return self._starting

    async def _start(self) -> Zygote:
        zygote = Zygote(self._parts, self.name, self._zygote_died)
        try:
            await zygote.start()
        except BaseException:
            await zygote.stop()
            raise
        self._zygote = zygote
        return zygote

    def _started(self, task: asyncio.Task[Zygote]) -> None:
        self._starting = None
        if not task.cancelled():
            task.exception()  # who waits for it raises it; it may also be that nobody does

    def _zygote_died(self, zygote: Zygote) -> None:
        if self._zygote is zygote:
            self._zygote = None
            self._stop(zygote)
        self._fail_waiting(SandboxError("the zygote of this call was lost"))

    def _stop(self, zygote: Zygote) -> None:
        task = asyncio.create_task(zygote.stop())
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)

    async def acquire(self) -> Slot:
        """A slot whose child is ready, for one run. Give it back by letting its run end.

        Raises:
            SandboxError: none can be made.
        """
        for _ in range(_ATTEMPTS - 1):
            try:
                return await self._acquire()
            except SandboxError:  # it was killed while we waited: nothing has run, so try once more
                continue
        return await self._acquire()

    async def _acquire(self) -> Slot:
        while self._idle:
            slot = self._idle.popleft()
            if slot.is_open:
                return slot
        zygote = self._zygote
        if zygote is None:
            task = self.warm_up()
            assert task is not None
            zygote = await asyncio.shield(task)
        if len(self._slots) < self._most:
            self._slots.add(zygote.new_slot(self._slot_ready, self._slot_lost))
        waiter: asyncio.Future[Slot] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self._slot_ready(waiter.result())  # handed over in the turn of the cancellation
            raise

    async def family(self) -> Family:
        """A new slot for a session, apart from those for runs. It is not open yet.

        Raises:
            SandboxError: none can be made.
        """
        zygote = self._zygote
        if zygote is None:
            task = self.warm_up()
            assert task is not None
            zygote = await asyncio.shield(task)
        return Family(zygote.new_channel(), zygote.reap)

    def _slot_ready(self, slot: Slot) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(slot)
                return
        self._idle.append(slot)

    def _slot_lost(self, slot: Slot, failure: Failure | None) -> None:
        self._slots.discard(slot)
        if failure is not None:
            self._fail_waiting(explained(failure))
        elif self._zygote is not None:
            self._zygote.reap()
            # The others may all be busy for long.
            if self._waiting and len(self._slots) < self._most:
                self._replace_slot(self._zygote)

    def _replace_slot(self, zygote: Zygote) -> None:
        try:
            self._slots.add(zygote.new_slot(self._slot_ready, self._slot_lost))
        except (OSError, SandboxError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            self._fail_waiting(SandboxError(f"a slot could not be replaced: {reason}"))

    def _fail_waiting(self, error: RollboxError) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_exception(error)

    async def close(self) -> None:
        """End the zygote, and with it every slot and program of the tier."""
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.wait({self._starting})
        zygote, self._zygote = self._zygote, None
        for slot in list(self._slots):
            slot.close()
        if zygote is not None:
            await zygote.stop()
        if self._stopping:
            await asyncio.wait(self._stopping)
