"""Backends over an index folder: BM25, vectors, and both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..schemas.errors import ConfigError
from .backend import Backend, BackendOptions, index_info, open_one_index, probe_of
from .bm25 import Bm25Index
from .combined.fusion import FusedRetriever
from .index.manifest import DENSE
from .index.opened import OpenedIndex
from .local import LocalRetriever

if TYPE_CHECKING:  # numpy is no part of the extra `search`
    from .dense.retriever import DenseRetriever

_EMBEDDED_TOGETHER = 64


@asynccontextmanager
async def open_bm25(sources: Sequence[str], options: BackendOptions) -> AsyncIterator[Backend]:
    """BM25 over one index folder.

    Raises:
        ConfigError: it is not one, or unusable; with `strict` also when its corpus has changed.
    """
    index, probe = await _opened("bm25", sources, options)
    retriever = LocalRetriever(index.bm25, options.threads)
    async with aclosing(retriever):
        yield Backend(retriever, probe, lambda: index_info(index), 8, options.threads, lasting=True)


@asynccontextmanager
async def open_dense_backend(sources: Sequence[str], options: BackendOptions) -> AsyncIterator[Backend]:
    """The vectors of one index folder.

    Raises:
        ConfigError: as `open_bm25`; or the folder has no dense part, it is damaged, or the model is another one.
        InfraError: the embedding server fails.
    """
    index, probe = await _opened("dense", sources, options)
    dense = await _open_dense(index.folder / DENSE, index.bm25, options)
    async with aclosing(dense):

        def info() -> dict[str, Any]:
            return index_info(index) | dense_info(dense)

        # While one batch is searched for, the next can be embedded.
        yield Backend(dense, probe, info, _EMBEDDED_TOGETHER, 2, lasting=True)


@asynccontextmanager
async def open_both(sources: Sequence[str], options: BackendOptions) -> AsyncIterator[Backend]:
    """BM25 and the vectors of one index folder, fused by rank.

    Raises:
        ConfigError, InfraError: as `open_dense_backend`; or `weights` are not two.
    """
    index, probe = await _opened("hybrid", sources, options)
    dense = await _open_dense(index.folder / DENSE, index.bm25, options)
    async with aclosing(dense), aclosing(LocalRetriever(index.bm25, options.threads)) as bm25:
        fused = FusedRetriever([bm25, dense], options.rank_constant, options.weights)

        def info() -> dict[str, Any]:
            weights = options.weights or [1.0, 1.0]
            return index_info(index) | dense_info(dense) | {"weights": weights, "rank_constant": options.rank_constant}

        yield Backend(fused, probe, info, _EMBEDDED_TOGETHER, 2, lasting=True)


def dense_info(dense: DenseRetriever) -> dict[str, Any]:
    """What `/v1/info` says of the dense part."""
    manifest = dense.manifest
    return {"embedding_model": manifest.model, "dimension": manifest.dimension, "dense_kind": manifest.kind}


async def _opened(name: str, sources: Sequence[str], options: BackendOptions) -> tuple[OpenedIndex, str]:
    """The index and its probe. In a thread: comparing checksums takes a second for each GiB."""

    def opened() -> tuple[OpenedIndex, str]:
        index = open_one_index(name, sources, options)
        return index, probe_of(index)

    return await asyncio.to_thread(opened)


async def _open_dense(folder: Path, store: Bm25Index, options: BackendOptions) -> DenseRetriever:
    try:
        from .dense.manifest import MANIFEST, DenseManifest, read_record
        from .dense.retriever import open_dense
    except ImportError as error:
        raise ConfigError(f"dense search: {error}; install it with: pip install 'rollbox[dense]'") from error
    embedder = read_record(folder / MANIFEST, DenseManifest).embedder
    given = {"model": options.embedding_model, "url": options.embedding_url, "device": options.device}
    moved = embedder.model_copy(update={name: value for name, value in given.items() if value is not None})
    return await open_dense(folder, store, moved, verify=options.verify)
