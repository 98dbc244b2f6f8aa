"""ShardedRetriever: a corpus that is spread over several servers, as one."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Literal, TypeAlias

from ...schemas.errors import ConfigError
from ..passages import Hit
from ..retriever import Retriever
from .fusion import FusedRetriever, all_or_first_failure

Merge: TypeAlias = Literal["score", "rrf"]


class ShardedRetriever:
    """Asks every shard for each query, and keeps the best of all.

    Where one shard fails, the call does: an answer that silently lacks a part of the corpus is worse than none.

    Args:
        merge: `score` where the shards' scores can be compared: cosines of one model, or BM25 over shards that are
            parts of one corpus by chance; `rrf` where they cannot.

    Raises:
        ConfigError: there is no shard.
    """

    def __init__(self, shards: Sequence[Retriever], merge: Merge = "score") -> None:
        if not shards:
            raise ConfigError("shards: no address is given")
        self._shards = list(shards)
        self._fused = FusedRetriever(self._shards) if merge == "rrf" else None

    async def search(self, queries: list[str], top_k: int, timeout_s: float) -> tuple[list[list[Hit]], int]:
        """Hits per query, and the retries of all shards together.

        Raises:
            OverloadedError, InfraError: those of the shard that fails first.
        """
        if self._fused is not None:
            return await self._fused.search(queries, top_k, timeout_s)
        answers = await all_or_first_failure(shard.search(queries, top_k, timeout_s) for shard in self._shards)
        lists = zip(*(hits for hits, _ in answers), strict=True)
        merged = [heapq.nlargest(max(0, top_k), (hit for hits in each for hit in hits), key=_score) for each in lists]
        return merged, sum(retries for _, retries in answers)

    async def aclose(self) -> None:
        for shard in self._shards:
            await shard.aclose()


def _score(hit: Hit) -> float:
    return hit.score
