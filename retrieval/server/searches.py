"""Searches: what every way into the server shares. A request is checked, admitted, answered and counted here."""

from __future__ import annotations

import asyncio
import math
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass

from ...schemas.errors import ErrorKind, InfraError, RollboxError, ToolError
from ...serving.admission import Admission
from ...serving.client_cap import ClientCap
from ..backend import Backend
from ..batching import BatchingRetriever
from ..cache import CachedRetriever
from ..passages import Hit
from .metrics import Metrics
from .settings import RetrieverSettings

_CACHED_ANSWERS = 1_000_000


@dataclass(frozen=True, slots=True)
class Found:
    """For each query its hits; see `schemas.search.SearchAnswer`."""

    results: list[list[Hit]]
    cached: bool
    retries: int
    queue_ms: float
    search_ms: float


class Searches:
    """The searches of one server, over a backend that is open."""

    def __init__(self, backend: Backend, settings: RetrieverSettings) -> None:
        self.backend = backend
        self._settings = settings
        self._batches = BatchingRetriever(backend.retriever, backend.batch, backend.at_a_time)
        ttl_s = math.inf if backend.lasting else settings.cache_ttl_s
        size = _CACHED_ANSWERS if settings.cache_hits else 0
        self._cache = CachedRetriever(self._batches, size, ttl_s, most_hits=settings.cache_hits)
        self.admission = Admission(settings.slots, settings.queue)
        self._cap = ClientCap(settings.max_per_client, noun="requests")
        self.metrics = Metrics(self.counts)

    async def search(self, queries: list[str], top_k: int, timeout_s: float | None, client: str) -> Found:
        """
        Raises:
            ToolError: (kind `arguments`) it asks for more than this server gives.
            OverloadedError: the queue is full, or the client has as many requests as it may.
            InfraError: the backend failed, or there was no answer in time.
        """
        started_s = time.monotonic()
        try:
            self._check(queries, top_k, timeout_s)
            limit_s = timeout_s or self._settings.timeout_s
            async with AsyncExitStack() as held:
                held.enter_context(self._cap.hold(client))
                queue_ms = await self._admitted(held, client, limit_s)
                left_s = max(0.0, started_s + limit_s - time.monotonic())
                found = await self._answered(queries, top_k, left_s, queue_ms)
        except RollboxError as error:
            self.metrics.count_error(error)
            raise
        empty = sum(not hits for hits in found.results)
        self.metrics.count(len(queries), empty, found.queue_ms / 1000, found.search_ms / 1000)
        return found

    async def _admitted(self, held: AsyncExitStack, client: str, timeout_s: float) -> float:
        try:
            async with asyncio.timeout(timeout_s):
                return await held.enter_async_context(self.admission.slot(client))
        except TimeoutError:
            raise InfraError(f"search unavailable: no slot was free within {timeout_s:.3g} s") from None

    async def _answered(self, queries: list[str], top_k: int, timeout_s: float, queue_ms: float) -> Found:
        started_s = time.monotonic()
        # A blank query would be the nearest to something in an engine of vectors.
        asked = [query for query in queries if query.strip()]
        answers, retries, cached = await self._cache.search_cached(asked, top_k, timeout_s)
        hits = iter(answers)
        results = [next(hits) if query.strip() else [] for query in queries]
        return Found(results, cached, retries, queue_ms, (time.monotonic() - started_s) * 1000)

    async def probe(self) -> None:
        """Ask the engine for something that it must find.

        Raises:
            InfraError: it failed, or found nothing.
        """
        results, _ = await self._batches.search([self.backend.probe], 1, self._settings.timeout_s)
        if not results[0] or not results[0][0].contents.strip():
            raise InfraError(f"the probe query {self.backend.probe!r} found nothing")

    def counts(self) -> dict[str, float]:
        return {
            "in_work": self.admission.running,
            "waiting": self.admission.waiting,
            "slots": self.admission.slots,
            "queue_size": self.admission.queue,
            "passages": self.backend.info().get("passages", 0),
            "cache_hits": self._cache.found,
            "cache_misses": self._cache.missed,
            "engine_calls": self._batches.calls,
            "engine_queries": self._batches.queries,
        }

    async def aclose(self) -> None:
        await self._cache.aclose()

    def _check(self, queries: list[str], top_k: int, timeout_s: float | None) -> None:
        most = self._settings
        if len(queries) > most.max_queries:
            _refuse(f"queries: {len(queries)} are too many: at most {most.max_queries} a request")
        if top_k > most.max_top_k:
            _refuse(f"top_k (topk, k): at most {most.max_top_k} passages per query on this server (got {top_k})")
        if len(queries) * top_k > most.max_hits:
            text = f"queries: {len(queries)} queries of {top_k} passages are too much at a time"
            _refuse(f"{text}: at most {most.max_hits} passages a request")
        for place, query in enumerate(queries):
            if len(query) > most.max_query_chars:
                _refuse(f"queries.{place}: has {len(query)} characters: at most {most.max_query_chars}")
        if timeout_s is not None and timeout_s > most.timeout_s:
            _refuse(f"timeout_s: at most {most.timeout_s:g} on this server (got {timeout_s:g})")


def _refuse(text: str) -> None:
    raise ToolError(text, ErrorKind.ARGUMENTS)
