"""Idempotency keys: a repeated request gets the first one's result, and never a second run."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from typing import Any

from ..schemas.errors import ErrorKind, ToolError
from ..schemas.run import RunRequest, RunResult
from .job import is_large

KEEP_S = 600.0
_MOST_KEPT = 4096
_MOST_BYTES = 64 << 20


class _Entry:
    def __init__(self, fingerprint: bytes, task: asyncio.Task[RunResult]) -> None:
        self.fingerprint = fingerprint
        self.task = task
        self.callers = 0
        self.size = 0
        self.ended_s = 0.0


class Idempotency:
    """Results by key, for `keep_s` seconds after the run, within a bound of memory that drops the oldest first.

    A run lives as long as any of its callers waits for it. Our own failures are not kept: the next caller runs again.
    """

    def __init__(self, keep_s: float = KEEP_S) -> None:
        self._keep_s = keep_s
        self._running: dict[str, _Entry] = {}
        self._ended: OrderedDict[str, _Entry] = OrderedDict()
        """By the time of their end, the oldest first."""
        self._bytes = 0

    async def run(self, request: RunRequest, start: Callable[[], Coroutine[Any, Any, RunResult]]) -> RunResult:
        """The result of the first run with the request's key, or of `start` when there is none yet.

        Raises:
            ToolError: (kind `arguments`) the key was used for another request. Else what `start` raises.
        """
        key = request.idempotency_key
        if key is None:
            return await start()
        self._expire()
        # Every run of our client has a key, and hashing the largest takes tenths of a second.
        fingerprint = await asyncio.to_thread(_fingerprint, request) if is_large(request) else _fingerprint(request)
        entry = self._running.get(key) or self._ended.get(key)
        if entry is None:
            entry = self._running[key] = _Entry(fingerprint, asyncio.create_task(start()))
            entry.task.add_done_callback(lambda task: self._keep(key, entry))
        elif entry.fingerprint != fingerprint:
            raise ToolError("idempotency_key: it was used for another request", ErrorKind.ARGUMENTS)
        return await self._wait(entry)

    async def _wait(self, entry: _Entry) -> RunResult:
        entry.callers += 1
        try:
            return (await asyncio.shield(entry.task)).model_copy()
        except asyncio.CancelledError:
            if entry.callers == 1:
                entry.task.cancel()
                await asyncio.wait({entry.task})
            raise
        finally:
            entry.callers -= 1

    def _keep(self, key: str, entry: _Entry) -> None:
        del self._running[key]
        if entry.task.cancelled() or entry.task.exception() is not None:
            return
        result = entry.task.result()
        entry.ended_s = time.monotonic()
        entry.size = len(result.stdout) + len(result.stderr) + sum(map(len, result.files.values()))
        self._bytes += entry.size
        self._ended[key] = entry
        self._expire()

    def _expire(self) -> None:
        too_old_s = time.monotonic() - self._keep_s
        while self._ended:
            full = len(self._running) + len(self._ended) > _MOST_KEPT or self._bytes > _MOST_BYTES
            if not full and next(iter(self._ended.values())).ended_s > too_old_s:
                return
            self._bytes -= self._ended.popitem(last=False)[1].size


def _fingerprint(request: RunRequest) -> bytes:
    return hashlib.sha256(request.model_dump_json().encode(errors="replace")).digest()
