"""Slots: how many calls may run at a time, over every thread and event loop of this process."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from types import TracebackType


class Slots:
    """First come, first served; as `async with`. Free slots cost no task switch.

    Not asyncio's semaphore, which belongs to one event loop: tools are shared by workers that have one each. Nobody
    owns the slots: when a waiter's loop has ended, its turn goes to the next.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._free = count
        self._waiting: deque[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = deque()
        self._lock = threading.Lock()

    @property
    def free(self) -> int:
        return self._free

    async def __aenter__(self) -> None:
        loop = asyncio.get_running_loop()
        with self._lock:
            if self._free > 0:
                self._free -= 1
                return
            future: asyncio.Future[None] = loop.create_future()
            self._waiting.append((loop, future))
        try:
            await future
        except asyncio.CancelledError:
            with self._lock:
                given = (loop, future) not in self._waiting
                if not given:
                    self._waiting.remove((loop, future))
            if given:  # the slot was on its way to us
                self._give_back()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._give_back()

    def _give_back(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._free += 1
                    return
                loop, future = self._waiting.popleft()
            try:
                loop.call_soon_threadsafe(_hand_over, future)
            except RuntimeError:  # that loop is closed
                continue
            return


def _hand_over(future: asyncio.Future[None]) -> None:
    # A waiter that was cancelled meanwhile finds that it is waiting no longer, and passes the slot on.
    if not future.done():
        future.set_result(None)
