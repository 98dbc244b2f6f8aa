"""BatchingRetriever: queries that come at the same time are asked together, and nobody's batch blocks the others."""

from __future__ import annotations

import asyncio
import time
from collections import deque

from ..schemas.errors import InfraError
from .passages import Hit
from .retriever import Retriever


class _Asker:
    """One call: its queries that nobody has taken yet, and its answers so far."""

    def __init__(self, queries: list[str], top_k: int, deadline_s: float) -> None:
        self.waiting = deque(enumerate(queries))
        self.top_k = top_k
        self.deadline_s = deadline_s
        self.answers: list[list[Hit]] = [[] for _ in queries]
        self.missing = len(queries)
        self.retries = 0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class BatchingRetriever:
    """Puts a queue before another retriever, for one event loop.

    A query waits for nothing when a call is free; while all are busy, those that come are gathered, one of each caller
    in turn, and asked together by the next. Queries of one batch have the same `top_k`: the first three of ten are not
    in every engine the best three.

    Args:
        batch: queries in a call at most. at_a_time: calls at a time.
    """

    def __init__(self, inner: Retriever, batch: int, at_a_time: int) -> None:
        self._inner = inner
        self._batch = batch
        self._at_a_time = at_a_time
        self._askers: deque[_Asker] = deque()
        self._waiting = 0
        self._running: dict[asyncio.Task[None], set[_Asker]] = {}
        self.calls = 0
        """Calls of the inner retriever, and the queries in them."""
        self.queries = 0

    async def search(self, queries: list[str], top_k: int, timeout_s: float) -> tuple[list[list[Hit]], int]:
        """As the inner retriever.

        Raises:
            InfraError: also when there was no answer within `timeout_s`, the time in the queue included.
        """
        if not queries:
            return [], 0
        asker = _Asker(queries, top_k, time.monotonic() + timeout_s)
        self._askers.append(asker)
        self._waiting += len(queries)
        self._start_calls()
        try:
            async with asyncio.timeout(timeout_s):
                await asker.done
        except TimeoutError:
            raise InfraError(f"search unavailable: no answer within {timeout_s:.3g} s") from None
        finally:
            self._leave(asker)
        return asker.answers, asker.retries

    async def aclose(self) -> None:
        """End what runs, and close the inner retriever."""
        for task in list(self._running):
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        await self._inner.aclose()

    def _start_calls(self) -> None:
        while self._askers and (free := self._at_a_time - len(self._running)) > 0:
            # What waits is spread over the calls that are free.
            taken = self._take(min(self._batch, -(-self._waiting // free)))
            task = asyncio.create_task(self._call(taken))
            self._running[task] = {asker for asker, _, _ in taken}
            task.add_done_callback(self._ended)

    def _take(self, most: int) -> list[tuple[_Asker, int, str]]:
        taken: list[tuple[_Asker, int, str]] = []
        top_k = self._askers[0].top_k
        passed_over = 0
        while len(taken) < most and passed_over < len(self._askers):
            asker = self._askers.popleft()
            if asker.top_k == top_k:
                taken.append((asker, *asker.waiting.popleft()))
                passed_over = 0
            else:
                passed_over += 1
            if asker.waiting:
                self._askers.append(asker)
        self._waiting -= len(taken)
        return taken

    async def _call(self, taken: list[tuple[_Asker, int, str]]) -> None:
        askers = {asker for asker, _, _ in taken}
        self.calls += 1
        self.queries += len(taken)
        try:
            timeout_s = max(asker.deadline_s for asker in askers) - time.monotonic()
            asked = [query for _, _, query in taken]
            found, retries = await self._inner.search(asked, taken[0][0].top_k, max(timeout_s, 0.0))
        except Exception as error:  # noqa: BLE001 - whoever waits must hear of it, whatever it is
            for asker in askers:
                if not asker.done.done():
                    asker.done.set_exception(error)
            return
        for (asker, place, _), hits in zip(taken, found, strict=True):
            asker.answers[place] = hits
            asker.missing -= 1
            asker.retries = max(asker.retries, retries)
            if not asker.missing and not asker.done.done():
                asker.done.set_result(None)

    def _ended(self, task: asyncio.Task[None]) -> None:
        for asker in self._running.pop(task):
            if task.cancelled() and not asker.done.done():
                asker.done.cancel()
        self._start_calls()

    def _leave(self, asker: _Asker) -> None:
        """Take back what nobody waits for any more, and end the calls that were for nobody else."""
        if asker.waiting:
            self._waiting -= len(asker.waiting)
            asker.waiting.clear()
            self._askers.remove(asker)
        if not asker.missing:
            return
        asker.done.cancel()
        for task, askers in self._running.items():
            if asker in askers and all(each.done.done() for each in askers):
                task.cancel()
