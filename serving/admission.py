"""Admission: a fixed number of slots and a bounded queue before them, fair between clients."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ..schemas.errors import OverloadedError

_FIRST_GUESS_S = 0.5
_SMOOTHING = 0.1
_RETRY_AFTER_MIN_S, _RETRY_AFTER_MAX_S = 0.1, 30.0


class Admission:
    """Hands out slots. A freed slot goes straight to a waiter, so that nobody overtakes the queue.

    Clients take turns; each client's own requests stay in their order.
    """

    def __init__(self, slots: int, queue: int) -> None:
        self.slots = slots
        self.queue = queue
        self._running = 0
        self._waiting = 0
        # The client whose turn it is comes first. Only clients that wait are in it.
        self._waiters: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self._mean_hold_s = _FIRST_GUESS_S

    @property
    def running(self) -> int:
        return self._running

    @property
    def waiting(self) -> int:
        return self._waiting

    @asynccontextmanager
    async def slot(self, client: str = "") -> AsyncIterator[float]:
        """Hold a slot; yields the milliseconds spent in the queue.

        Raises:
            OverloadedError: all slots are taken and the queue is full.
        """
        arrived_s = time.monotonic()
        await self._acquire(client)
        started_s = time.monotonic()
        try:
            yield (started_s - arrived_s) * 1000
        finally:
            self._mean_hold_s += _SMOOTHING * (time.monotonic() - started_s - self._mean_hold_s)
            self._release()

    async def _acquire(self, client: str = "") -> None:
        if self._running < self.slots:
            self._running += 1
            return
        if self._waiting >= self.queue:
            text = f"all {self.slots} slots are busy and {self._waiting} requests wait"
            raise OverloadedError(text, retry_after_s=self._retry_after_s())
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(client, deque()).append(waiter)
        self._waiting += 1
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.cancelled():
                self._forget(client, waiter)
            else:
                self._release()  # the slot was handed over in the same turn of the loop as the cancellation
            raise

    def _forget(self, client: str, waiter: asyncio.Future[None]) -> None:
        own = self._waiters.get(client)
        if own is not None and waiter in own:  # else already passed over by `_release`
            own.remove(waiter)
            self._waiting -= 1
            if not own:
                del self._waiters[client]

    def _release(self) -> None:
        while self._waiters:
            client, own = self._waiters.popitem(last=False)
            waiter = own.popleft()
            self._waiting -= 1
            if own:
                self._waiters[client] = own  # behind all others
            if not waiter.done():  # a cancelled waiter stays in the queue until its task runs again
                waiter.set_result(None)
                return
        self._running -= 1

    def _retry_after_s(self) -> float:
        drain_s = self._mean_hold_s * (self._waiting + 1) / self.slots
        return min(max(drain_s, _RETRY_AFTER_MIN_S), _RETRY_AFTER_MAX_S)
