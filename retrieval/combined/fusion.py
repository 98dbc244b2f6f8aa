"""FusedRetriever: several sources as one, by reciprocal rank fusion (Cormack, Clarke and Büttcher, 2009)."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from ...schemas.errors import ConfigError
from ..passages import Hit
from ..retriever import Retriever

RANK_CONSTANT = 10
"""On known items 10 found more than the paper's 60; see docs/retrieval.md."""
_MIN_DEPTH = 30
T = TypeVar("T")


class FusedRetriever:
    """Asks all sources at a time, and orders by the sum of `weight / (k + rank)` over the sources that have a passage.

    A passage is known by title and text, so that the same one found by two sources counts as one. Where one source
    fails, the call does: hits of the others alone would be others than those that training saw before.

    Args:
        k: the larger, the less the first ranks count. weights: one per source; all 1 by default.

    Raises:
        ConfigError: no sources, or weights that are negative, all zero, or not one per source.
    """

    def __init__(self, sources: Sequence[Retriever], k: float = RANK_CONSTANT, weights: Sequence[float] = ()) -> None:
        self._sources = list(sources)
        self._k = k
        self._weights = list(weights) or [1.0] * len(self._sources)
        if not self._sources:
            raise ConfigError("hybrid: no sources are given")
        if len(self._weights) != len(self._sources):
            raise ConfigError(f"hybrid: {len(self._weights)} weights for {len(self._sources)} sources; give one each")
        if min(self._weights) < 0 or not any(self._weights):
            raise ConfigError(f"hybrid: weights must be 0 or more, and not all 0 (got {self._weights})")

    async def search(self, queries: list[str], top_k: int, timeout_s: float) -> tuple[list[list[Hit]], int]:
        """Hits per query, their sum as score, and the retries of all sources together.

        Raises:
            OverloadedError, InfraError: those of the source that fails first.
        """
        depth = max(_MIN_DEPTH, 2 * top_k) if top_k > 0 else 0
        answers = await all_or_first_failure(source.search(queries, depth, timeout_s) for source in self._sources)
        fused = [self._fused(lists, top_k) for lists in zip(*(hits for hits, _ in answers), strict=True)]
        return fused, sum(retries for _, retries in answers)

    async def aclose(self) -> None:
        for source in self._sources:
            await source.aclose()

    def _fused(self, lists: Sequence[list[Hit]], top_k: int) -> list[Hit]:
        sums: dict[tuple[str, str], float] = {}
        hits: dict[tuple[str, str], Hit] = {}
        for weight, found in zip(self._weights, lists, strict=True):
            # A source may find the same passage twice; only its first rank counts.
            ranked = dict.fromkeys((hit.title, hit.text) for hit in found)
            hits = {(hit.title, hit.text): hit for hit in reversed(found)} | hits
            for rank, key in enumerate(ranked, start=1):
                sums[key] = sums.get(key, 0.0) + weight / (self._k + rank)
        best = sorted(sums, key=lambda key: -sums[key])[: max(0, top_k)]
        return [replace(hits[key], score=sums[key]) for key in best if sums[key] > 0]


async def all_or_first_failure(calls: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """The results of all coroutines; on a failure, that failure, with the others cancelled and over."""
    tasks = [asyncio.create_task(call) for call in calls]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
