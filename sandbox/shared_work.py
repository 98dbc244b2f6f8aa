"""Work that several callers wait for together, and whose results are kept for a while."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from ..schemas.errors import ErrorKind, ToolError

T = TypeVar("T")
KEEP_S = 600.0
_MOST_KEPT = 4096


class _Entry(Generic[T]):
    def __init__(self, fingerprint: bytes, task: asyncio.Task[T]) -> None:
        self.fingerprint = fingerprint
        self.task = task
        self.callers = 0
        self.size = 0
        self.ended_s = 0.0


class SharedWork(Generic[T]):
    """Results by key, for `keep_s` seconds after their work, within a bound of memory that drops the oldest first.

    Work lives as long as any of its callers waits for it. Work that raised is not kept: the next caller starts again.
    """

    def __init__(
        self,
        *,
        size: Callable[[T], int],
        most_bytes: int,
        keep: Callable[[T], bool] = lambda _: True,
        keep_s: float = KEEP_S,
    ) -> None:
        """`size` in bytes. `keep` says whether a result is for others too."""
        self._size = size
        self._most_bytes = most_bytes
        self._keep = keep
        self._keep_s = keep_s
        self._running: dict[str, _Entry[T]] = {}
        self._ended: OrderedDict[str, _Entry[T]] = OrderedDict()
        """By the time of their end, the oldest first."""
        self._bytes = 0

    async def join(self, key: str, fingerprint: bytes, start: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The result of the first work with `key`, or of `start` when there is none yet.

        Raises:
            ToolError: (kind `arguments`) the key was used with another fingerprint. Else what `start` raises.
        """
        self._expire()
        entry = self._running.get(key) or self._ended.get(key)
        if entry is None:
            entry = self._running[key] = _Entry(fingerprint, asyncio.create_task(start()))
            added = entry
            entry.task.add_done_callback(lambda _: self._end(key, added))
        elif entry.fingerprint != fingerprint:
            raise ToolError("idempotency_key: it was used for another request", ErrorKind.ARGUMENTS)
        return await self._wait(entry)

    async def _wait(self, entry: _Entry[T]) -> T:
        entry.callers += 1
        try:
            return await asyncio.shield(entry.task)
        except asyncio.CancelledError:
            if entry.callers == 1:
                entry.task.cancel()
                await asyncio.wait({entry.task})
            raise
        finally:
            entry.callers -= 1

    def _end(self, key: str, entry: _Entry[T]) -> None:
        del self._running[key]
        if entry.task.cancelled() or entry.task.exception() is not None or not self._keep(entry.task.result()):
            return
        entry.ended_s = time.monotonic()
        entry.size = self._size(entry.task.result())
        self._bytes += entry.size
        self._ended[key] = entry
        self._expire()

    def _expire(self) -> None:
        too_old_s = time.monotonic() - self._keep_s
        while self._ended:
            full = len(self._running) + len(self._ended) > _MOST_KEPT or self._bytes > self._most_bytes
            if not full and next(iter(self._ended.values())).ended_s > too_old_s:
                return
            self._bytes -= self._ended.popitem(last=False)[1].size
