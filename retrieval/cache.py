"""CachedRetriever: remembers answers, and asks once for what is being asked for already."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import OrderedDict
from weakref import WeakKeyDictionary

from ..schemas.errors import InfraError
from .passages import Hit
from .retriever import Retriever

Key = tuple[str, int]


class _Asking:
    """One call of the inner retriever, and how many wait for it."""

    def __init__(self, keys: list[Key], deadline_s: float) -> None:
        self.keys = keys
        self.deadline_s = deadline_s
        self.callers = 0
        self.retries = 0
        self.task: asyncio.Task[dict[Key, list[Hit]]]


class CachedRetriever:
    """Puts a cache before another retriever. Failures are not remembered.

    A call lives as long as anybody waits for it: it outlives the caller that began it, and ends with the last.

    Args:
        size: answers kept, the least recently used go first. ttl_s: seconds that an answer stays good.
        most_hits: hits kept in all these answers together, an empty answer as one; None bounds the number of answers
            alone.
    """

    def __init__(self, inner: Retriever, size: int, ttl_s: float, most_hits: int | None = None) -> None:
        self._inner = inner
        self._size = size
        self._ttl_s = ttl_s
        self._most_hits = most_hits
        self._kept: OrderedDict[Key, tuple[float, list[Hit]]] = OrderedDict()
        self._kept_hits = 0
        self._lock = threading.Lock()
        self._asked: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Key, _Asking]] = WeakKeyDictionary()
        self.found = 0
        """Queries answered from the cache or from what was being asked already, and queries asked for."""
        self.missed = 0

    async def search(self, queries: list[str], top_k: int, timeout_s: float) -> tuple[list[list[Hit]], int]:
        """As the inner retriever; queries that differ in white space only are one."""
        hits, retries, _ = await self.search_cached(queries, top_k, timeout_s)
        return hits, retries

    async def search_cached(
        self, queries: list[str], top_k: int, timeout_s: float
    ) -> tuple[list[list[Hit]], int, bool]:
        """As `search`; also whether nobody had to be asked for it."""
        deadline_s = time.monotonic() + timeout_s
        keys = [(" ".join(query.split()), top_k) for query in queries]
        found = {key: hits for key in keys if (hits := self._recall(key)) is not None}
        asked = self._asked.setdefault(asyncio.get_running_loop(), {})
        missing = list(dict.fromkeys(key for key in keys if key not in found and key not in asked))
        self.found += len(keys) - len(missing)
        self.missed += len(missing)
        if missing:
            asking = _Asking(missing, deadline_s)
            asked.update(dict.fromkeys(missing, asking))
            asking.task = asyncio.create_task(self._ask(asking, asked, top_k, timeout_s))
            asking.task.add_done_callback(_noticed)
        waiting = {key: asked[key] for key in keys if key not in found}
        askings = set(waiting.values())
        for each in askings:
            each.callers += 1
        try:
            async with asyncio.timeout(timeout_s):
                for key, each in waiting.items():
                    # Shielded: whoever asks for the same must not lose it with us.
                    found[key] = (await asyncio.shield(each.task))[key]
        except TimeoutError:
            raise InfraError(f"search unavailable: no answer within {timeout_s:.3g} s") from None
        except InfraError:
            # Who began the call had less time than we have.
            if not any(each.task.done() and each.deadline_s <= time.monotonic() < deadline_s for each in askings):
                raise
        finally:
            for each in askings:
                self._leave(each, asked)
        if len(found) < len(set(keys)):
            return await self.search_cached(queries, top_k, deadline_s - time.monotonic())
        return [found[key] for key in keys], sum(each.retries for each in askings), not waiting

    async def aclose(self) -> None:
        for asking in set(self._asked.pop(asyncio.get_running_loop(), {}).values()):
            asking.task.cancel()
            await asyncio.gather(asking.task, return_exceptions=True)
        await self._inner.aclose()

    async def _ask(
        self, asking: _Asking, asked: dict[Key, _Asking], top_k: int, timeout_s: float
    ) -> dict[Key, list[Hit]]:
        try:
            queries = [query for query, _ in asking.keys]
            answers, asking.retries = await self._inner.search(queries, top_k, timeout_s)
            found = dict(zip(asking.keys, answers, strict=True))
            self._remember(found)
            return found
        finally:
            _forget(asking, asked)

    def _leave(self, asking: _Asking, asked: dict[Key, _Asking]) -> None:
        asking.callers -= 1
        if not asking.callers and not asking.task.done():
            _forget(asking, asked)  # at once: who asks for the same now must not wait for what is being ended
            asking.task.cancel()

    def _recall(self, key: Key) -> list[Hit] | None:
        with self._lock:
            kept = self._kept.get(key)
            if kept is None:
                return None
            if time.monotonic() - kept[0] > self._ttl_s:
                self._drop(key)
                return None
            self._kept.move_to_end(key)
            return kept[1]

    def _remember(self, found: dict[Key, list[Hit]]) -> None:
        now = time.monotonic()
        with self._lock:
            for key, hits in found.items():
                if key in self._kept:
                    self._drop(key)
                self._kept[key] = (now, hits)
                self._kept_hits += _size_of(hits)
            while len(self._kept) > self._size or self._kept_hits > (self._most_hits or math.inf):
                self._drop(next(iter(self._kept)))

    def _drop(self, key: Key) -> None:
        self._kept_hits -= _size_of(self._kept.pop(key)[1])


def _size_of(hits: list[Hit]) -> int:
    """An answer without hits is kept with its query, which may be long."""
    return max(1, len(hits))


def _forget(asking: _Asking, asked: dict[Key, _Asking]) -> None:
    for key in asking.keys:
        if asked.get(key) is asking:
            del asked[key]


def _noticed(task: asyncio.Task[dict[Key, list[Hit]]]) -> None:
    """Whoever asked may have gone before the failure came."""
    if not task.cancelled():
        task.exception()
