"""Idempotency keys: a repeated request gets the first one's result, and never a second run."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Coroutine
from typing import Any

from pydantic import BaseModel

from ..schemas.run import RunRequest, RunResult
from .job import is_large
from .shared_work import KEEP_S, SharedWork

_MOST_BYTES = 64 << 20


class Idempotency:
    """The results of runs by key, for ten minutes."""

    def __init__(self, keep_s: float = KEEP_S) -> None:
        self._work: SharedWork[RunResult] = SharedWork(size=_size, most_bytes=_MOST_BYTES, keep_s=keep_s)

    async def run(self, request: RunRequest, start: Callable[[], Coroutine[Any, Any, RunResult]]) -> RunResult:
        """The result of the first run with the request's key, or of `start` when there is none yet.

        Raises:
            ToolError: (kind `arguments`) the key was used for another request. Else what `start` raises.
        """
        key = request.idempotency_key
        if key is None:
            return await start()
        # Every run of our client has a key, and hashing the largest takes tenths of a second.
        if is_large(request):
            found = await asyncio.to_thread(fingerprint, request)
        else:
            found = fingerprint(request)
        return (await self._work.join(key, found, start)).model_copy()


def fingerprint(request: BaseModel) -> bytes:
    return hashlib.sha256(request.model_dump_json().encode(errors="replace")).digest()


def _size(result: RunResult) -> int:
    return len(result.stdout) + len(result.stderr) + sum(map(len, result.files.values()))
