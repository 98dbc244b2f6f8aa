"""Admission: a fixed number of slots and a bounded first-in, first-out queue before them."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from ..schemas.errors import OverloadedError

_FIRST_GUESS_S = 0.5
_SMOOTHING = 0.1
_RETRY_AFTER_MIN_S, _RETRY_AFTER_MAX_S = 0.1, 30.0


class Admission:
    """Hands out slots. A freed slot goes straight to the longest waiter, so that nobody overtakes the queue."""

    def __init__(self, slots: int, queue: int) -> None:
        self.slots = slots
        self.queue = queue
        self._running = 0
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._mean_hold_s = _FIRST_GUESS_S

    @property
    def running(self) -> int:
        return self._running

    @property
    def waiting(self) -> int:
        return len(self._waiters)

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[float]:
        """Hold a slot; yields the milliseconds spent in the queue.

        Raises:
            OverloadedError: all slots are taken and the queue is full.
        """
        arrived_s = time.monotonic()
        await self._acquire()
        started_s = time.monotonic()
        try:
            yield (started_s - arrived_s) * 1000
        finally:
            self._mean_hold_s += _SMOOTHING * (time.monotonic() - started_s - self._mean_hold_s)
            self._release()

    async def _acquire(self) -> None:
        if self._running < self.slots:
            self._running += 1
            return
        if len(self._waiters) >= self.queue:
            text = f"all {self.slots} slots are busy and {len(self._waiters)} requests wait"
            raise OverloadedError(text, retry_after_s=self._retry_after_s())
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.cancelled():
                with suppress(ValueError):  # already passed over by `_release`
                    self._waiters.remove(waiter)
            else:
                self._release()  # the slot was handed over in the same turn of the loop as the cancellation
            raise

    def _release(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():  # a cancelled waiter stays in the queue until its task runs again
                waiter.set_result(None)
                return
        self._running -= 1

    def _retry_after_s(self) -> float:
        drain_s = self._mean_hold_s * (len(self._waiters) + 1) / self.slots
        return min(max(drain_s, _RETRY_AFTER_MIN_S), _RETRY_AFTER_MAX_S)
