"""Client of Qdrant: all queries in one batch, their vectors by an embedder of ours.

POST /collections/wiki/points/query/batch {"searches": [{"query": [0.1, ...], "limit": 3, "with_payload": true}, ...]}
-> {"result": [{"points": [{"id", "score", "payload": {...}}, ...]}, ...]}
"""

from __future__ import annotations

import os
import time
from typing import Any

from ...schemas.errors import ConfigError, InfraError
from ...schemas.redacted import redacted
from ..dense.embedder import Embedder, Vectors
from ..passages import Hit
from .http_service import BadReplyError, HttpService
from .stored_records import hit_of_record

KEY_VARIABLE = "ROLLBOX_QDRANT_KEY"
_PROBE_TEXT = "capital of Peru"


class QdrantRetriever:
    """A collection of points whose payload has `contents`, or `title` and `text`.

    An API key is read from the environment variable `ROLLBOX_QDRANT_KEY`.

    Args:
        url: of the collection: http://host:6333/wiki.
        embedder: of the model that the collection was filled with. query_prefix: what it wants before a query.
        vector: the name of the vectors, where the collection has several kinds.

    Raises:
        ConfigError: the address names no collection.
    """

    def __init__(
        self, url: str, max_connections: int, embedder: Embedder, query_prefix: str = "", vector: str | None = None
    ) -> None:
        server, _, name = url.rstrip("/").rpartition("/")
        if server.endswith(("/", ":")) or not name:
            raise ConfigError(f"qdrant: {url!r} names no collection; write it as http://host:6333/COLLECTION")
        self._collection = HttpService(f"{server}/collections/{name}", max_connections)
        self._points = HttpService(f"{server}/collections/{name}/points/query/batch", max_connections)
        self._url = redacted(url)
        self._embedder = embedder
        self._prefix = query_prefix
        self._using = {} if vector is None else {"using": vector}
        self._vector = vector
        key = os.environ.get(KEY_VARIABLE)
        self._headers = {"api-key": key} if key else {}

    async def check(self, timeout_s: float = 60.0) -> None:
        """That the collection holds vectors such as the embedder gives.

        Raises:
            ConfigError: it does not. InfraError: there is no such collection, or no answer.
        """
        probe, _ = await self._embedder.embed([_PROBE_TEXT], timeout_s)
        answer, _ = await self._collection.retried(
            lambda: self._collection.exchange("GET", headers=self._headers), timeout_s
        )
        try:
            vectors = answer["result"]["config"]["params"]["vectors"]
        except (KeyError, TypeError):
            raise InfraError(f"qdrant {self._url}: no description of a collection") from None
        if self._vector is None and not isinstance(vectors.get("size"), int):
            raise ConfigError(
                f"qdrant {self._url}: has vectors named {', '.join(map(repr, vectors))}; name one of them"
            )
        held = vectors if self._vector is None else vectors.get(self._vector)
        if held is None:
            raise ConfigError(f"qdrant {self._url}: has no vectors named {self._vector!r}; it has {list(vectors)}")
        if held["size"] != probe.shape[1]:
            raise ConfigError(
                f"qdrant {self._url}: holds vectors of {held['size']} numbers, the embedding model gives "
                f"{probe.shape[1]}; use the model that the collection was filled with"
            )

    async def search(self, queries: list[str], top_k: int, timeout_s: float) -> tuple[list[list[Hit]], int]:
        """Hits per query, and the retries of both embedder and Qdrant; none for a blank query.

        Raises:
            OverloadedError, InfraError: of the embedder, or as `retried`.
        """
        deadline = time.monotonic() + timeout_s
        asked = [query for query in queries if query.strip()]
        if not asked or top_k < 1:
            return [[] for _ in queries], 0
        vectors, retries = await self._embedder.embed([self._prefix + query for query in asked], timeout_s)
        found, more = await self._points.retried(lambda: self._attempt(vectors, top_k), deadline - time.monotonic())
        left = iter(found)
        return [next(left) if query.strip() else [] for query in queries], retries + more

    async def aclose(self) -> None:
        for part in (self._collection, self._points, self._embedder):
            await part.aclose()

    async def _attempt(self, vectors: Vectors, top_k: int) -> list[list[Hit]]:
        searches = [{"query": row, "limit": top_k, "with_payload": True, **self._using} for row in vectors.tolist()]
        answer = await self._points.exchange("POST", json={"searches": searches}, headers=self._headers)
        return _answers(answer, len(vectors))


def _answers(answer: Any, queries: int) -> list[list[Hit]]:
    result = answer.get("result") if isinstance(answer, dict) else None
    if not isinstance(result, list) or len(result) != queries:
        raise BadReplyError(f"no list 'result' with one for each of {queries} queries")
    return [_hits(item) for item in result]


def _hits(item: Any) -> list[Hit]:
    points = item.get("points") if isinstance(item, dict) else None
    if not isinstance(points, list) or not all(isinstance(point, dict) for point in points):
        raise BadReplyError("a result without points")
    return [hit_of_record(point.get("id"), point.get("payload") or {}, point.get("score")) for point in points]
