"""Pacing: calls that come by the thousand begin a few at a time, so that the event loop also gets to everything else.

An event loop runs all that is ready before it looks at its timers and sockets again. Ten thousand calls that need a
tenth of a millisecond each would keep it from them for a second.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from weakref import WeakKeyDictionary

_TURN_S = 0.002
"""How long one turn of the loop may take while calls wait."""
_FEWEST, _MOST = 2, 256


class Pace:
    """Lets calls begin in order, as many in one turn of the loop as recent turns had time for."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._batch = 16
        self._begun = 0
        self._ticking = False
        self._ticked_at = 0.0

    async def turn(self) -> None:
        """Return when the next call may begin; at once, as long as few do."""
        loop = asyncio.get_running_loop()
        if not self._ticking:
            self._ticking = True
            self._ticked_at = time.perf_counter()
            loop.call_soon(self._tick)
        if self._begun < self._batch and not self._waiting:
            self._begun += 1
            return
        future: asyncio.Future[None] = loop.create_future()
        self._waiting.append(future)
        await future

    def _tick(self) -> None:
        """Once in each turn of the loop while calls begin."""
        now = time.perf_counter()
        took_s, self._ticked_at = now - self._ticked_at, now
        if took_s > _TURN_S:
            self._batch = max(_FEWEST, self._batch // 2)
        elif self._waiting:
            self._batch = min(_MOST, self._batch + 1)
        self._begun = 0
        while self._waiting and self._begun < self._batch:
            future = self._waiting.popleft()
            if not future.done():  # a call that was cancelled meanwhile leaves its place to the next
                future.set_result(None)
                self._begun += 1
        self._ticking = self._begun > 0
        if self._ticking:
            asyncio.get_running_loop().call_soon(self._tick)


_paces: WeakKeyDictionary[asyncio.AbstractEventLoop, Pace] = WeakKeyDictionary()


async def turn() -> None:
    """Wait for the running event loop's leave to begin one more call."""
    loop = asyncio.get_running_loop()
    pace = _paces.get(loop)
    if pace is None:
        pace = _paces[loop] = Pace()
    await pace.turn()
