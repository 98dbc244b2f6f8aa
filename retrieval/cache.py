"""CachedRetriever: remembers answers, and asks once for what is being asked for already."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from weakref import WeakKeyDictionary

from ..schemas.errors import InfraError
from .passages import Hit
from .retriever import Retriever

Key = tuple[str, int]


class CachedRetriever:
    """Puts a cache before another retriever. Failures are not remembered.

    Args:
        size: answers kept, the least recently used go first. ttl_s: seconds that an answer stays good.
    """

    def __init__(self, inner: Retriever, size: int, ttl_s: float) -> None:
        self._inner = inner
        self._size = size
        self._ttl_s = ttl_s
        self._kept: OrderedDict[Key, tuple[float, list[Hit]]] = OrderedDict()
        self._lock = threading.Lock()
        self._asked: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Key, asyncio.Task[dict[Key, list[Hit]]]]] = (
            WeakKeyDictionary()
        )
        self._retries: WeakKeyDictionary[asyncio.Task[dict[Key, list[Hit]]], int] = WeakKeyDictionary()

    async def search(self, queries: list[str], top_k: int, timeout_s: float) -> tuple[list[list[Hit]], int]:
        """As the inner retriever; queries that differ in white space only are one."""
        hits, retries, _ = await self.search_cached(queries, top_k, timeout_s)
        return hits, retries

    async def search_cached(
        self, queries: list[str], top_k: int, timeout_s: float
    ) -> tuple[list[list[Hit]], int, bool]:
        """As `search`; also whether nobody had to be asked for it."""
        keys = [(" ".join(query.split()), top_k) for query in queries]
        found = {key: hits for key in keys if (hits := self._recall(key)) is not None}
        asked = self._asked.setdefault(asyncio.get_running_loop(), {})
        missing = list(dict.fromkeys(key for key in keys if key not in found and key not in asked))
        if missing:
            task = asyncio.create_task(self._ask(missing, top_k, timeout_s))
            task.add_done_callback(_noticed)
            for key in missing:
                asked[key] = task
        waiting = {key: asked[key] for key in keys if key not in found}
        retries = 0
        try:
            async with asyncio.timeout(timeout_s):
                for key, task in waiting.items():
                    # Shielded: whoever asks for the same must not lose it with us.
                    found[key] = (await asyncio.shield(task))[key]
                retries = sum(self._retries.get(task, 0) for task in set(waiting.values()))
        except TimeoutError:
            raise InfraError(f"search unavailable: no answer within {timeout_s:.3g} s") from None
        return [found[key] for key in keys], retries, not waiting

    async def aclose(self) -> None:
        for task in set(self._asked.pop(asyncio.get_running_loop(), {}).values()):
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await self._inner.aclose()

    async def _ask(self, keys: list[Key], top_k: int, timeout_s: float) -> dict[Key, list[Hit]]:
        task = asyncio.current_task()
        assert task is not None
        try:
            answers, self._retries[task] = await self._inner.search([query for query, _ in keys], top_k, timeout_s)
            found = dict(zip(keys, answers, strict=True))
            self._remember(found)
            return found
        finally:
            asked = self._asked.get(asyncio.get_running_loop(), {})
            for key in keys:
                asked.pop(key, None)

    def _recall(self, key: Key) -> list[Hit] | None:
        with self._lock:
            kept = self._kept.get(key)
            if kept is None:
                return None
            if time.monotonic() - kept[0] > self._ttl_s:
                del self._kept[key]
                return None
            self._kept.move_to_end(key)
            return kept[1]

    def _remember(self, found: dict[Key, list[Hit]]) -> None:
        now = time.monotonic()
        with self._lock:
            for key, hits in found.items():
                self._kept[key] = (now, hits)
                self._kept.move_to_end(key)
            while len(self._kept) > self._size:
                self._kept.popitem(last=False)


def _noticed(task: asyncio.Task[dict[Key, list[Hit]]]) -> None:
    """Whoever asked may have gone before the failure came."""
    if not task.cancelled():
        task.exception()
