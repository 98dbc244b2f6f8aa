"""DenseRetriever: the passages whose vectors are nearest to a query's."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import numpy as np

from ...schemas.errors import InfraError
from ..index.file_checks import check_files
from ..passages import Hit
from .embedder import Embedder, EmbedderConfig, Vectors, open_embedder_aside
from .manifest import MANIFEST, VECTORS, DenseManifest, PassageStore, check_same, read_record
from .nearest import Nearest, open_nearest
from .vectors import map_vectors


class DenseRetriever:
    """Embeds the queries of a call together, and searches in a thread.

    Args:
        manifest: of the index. nearest: over its vectors. store: with the passages of their rows.
    """

    def __init__(self, manifest: DenseManifest, nearest: Nearest, store: PassageStore, embedder: Embedder) -> None:
        self.manifest = manifest
        self._nearest = nearest
        self._store = store
        self._embedder = embedder
        self._prefix = manifest.embedder.query_prefix or ""

    async def search(self, queries: list[str], top_k: int, timeout_s: float) -> tuple[list[list[Hit]], int]:
        """Hits per query, the cosine as their score; none for a blank query. Also the embedder's retries.

        Raises:
            OverloadedError, InfraError: the embedding server's; or `timeout_s` seconds are over.
        """
        deadline = time.monotonic() + timeout_s
        asked = [query for query in queries if query.strip()]
        top_k = min(top_k, self.manifest.passages)
        if not asked or top_k < 1:
            return [[] for _ in queries], 0
        vectors, retries = await self._embedder.embed([self._prefix + query for query in asked], timeout_s)
        try:
            async with asyncio.timeout(deadline - time.monotonic()):
                found = iter(await asyncio.to_thread(self._hits, vectors, top_k))
        except TimeoutError:
            raise InfraError(f"search unavailable: no answer within {timeout_s:.3g} s", retries) from None
        return [next(found) if query.strip() else [] for query in queries], retries

    async def aclose(self) -> None:
        await self._embedder.aclose()

    def _hits(self, vectors: Vectors, top_k: int) -> list[list[Hit]]:
        scores, rows = self._nearest.search(vectors, top_k)
        needed = [int(row) for row in np.unique(rows[rows >= 0])]
        passages = dict(zip(needed, self._store.passages_at(needed), strict=True))
        return [
            # faiss fills up with -1 what it does not find.
            [
                Hit.of(passages[row], float(score))
                for score, row in zip(each_scores, map(int, each_rows), strict=True)
                if row >= 0
            ]
            for each_scores, each_rows in zip(scores, rows, strict=True)
        ]


async def open_dense(
    folder: Path, store: PassageStore, changes: EmbedderConfig | None = None, *, verify: bool | None = None
) -> DenseRetriever:
    """Open the dense part that `build_dense` wrote to `folder`.

    Args:
        store: the passages that it was built from.
        changes: where the model is now: its `model`, `url`, `device` and `batch_size` are taken; the prefixes are
            always the index's.
        verify: compare every byte with its checksum, and not only sizes; None does so up to 1 GiB.

    Raises:
        ConfigError: it is missing, unfinished or damaged, belongs to other passages, or the model is another one.
        InfraError: the embedding server fails.
    """
    manifest, nearest = await asyncio.to_thread(_mapped, folder, verify)
    embedder = await open_embedder_aside(changes or manifest.embedder)
    try:
        await check_same(manifest, store, embedder)
    except BaseException:
        await embedder.aclose()
        raise
    return DenseRetriever(manifest, nearest, store, embedder)


def _mapped(folder: Path, verify: bool | None) -> tuple[DenseManifest, Nearest]:
    manifest = read_record(folder / MANIFEST, DenseManifest)
    check_files(folder, manifest.files, verify=verify, again="delete the folder and build the dense part anew")
    vectors = map_vectors(folder / VECTORS, manifest.passages, manifest.dimension)
    return manifest, open_nearest(manifest.kind, folder, vectors)
