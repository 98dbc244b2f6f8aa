"""Backends: the sources of passages that a server can be started with, by name."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

from ..schemas.errors import ConfigError
from ..schemas.validation import nearest
from .backend import Backend, BackendOptions, Opener, is_address
from .combined.fusion import FusedRetriever
from .local_backends import open_bm25, open_both, open_dense_backend
from .remote_backends import open_elasticsearch, open_qdrant, open_remote, open_shards


@asynccontextmanager
async def open_hybrid(sources: Sequence[str], options: BackendOptions) -> AsyncIterator[Backend]:
    """BM25 and the vectors of one index folder; or the backends of several sources, each written as NAME+SOURCE, such
    as bm25+/indexes/wiki or qdrant+http://host:6333/wiki. Fused by rank.

    Raises:
        ConfigError, InfraError: as the parts' openers; or `weights` are not one per part.
    """
    async with AsyncExitStack() as stack:
        if len(sources) == 1:
            yield await stack.enter_async_context(open_both(sources, options))
            return
        parts: list[Backend] = []
        for source in sources:
            name, plus, where = source.partition("+")
            if not plus or name not in BACKENDS:
                raise ConfigError(f"backend hybrid: {source!r}: write each of several sources as NAME+SOURCE")
            parts.append(await stack.enter_async_context(open_backend(name, [where], options)))
        fused = FusedRetriever([part.retriever for part in parts], options.rank_constant, options.weights)

        def info() -> dict[str, Any]:
            return {"parts": [part.info() for part in parts], "rank_constant": options.rank_constant}

        lasting = all(part.lasting for part in parts)
        together, at_a_time = max(part.batch for part in parts), min(part.at_a_time for part in parts)
        yield Backend(fused, parts[0].probe, info, together, at_a_time, lasting)


BACKENDS: dict[str, Opener] = {
    "bm25": open_bm25,
    "dense": open_dense_backend,
    "hybrid": open_hybrid,
    "remote": open_remote,
    "shards": open_shards,
    "elasticsearch": open_elasticsearch,
    "qdrant": open_qdrant,
}


def open_backend(name: str, sources: Sequence[str], options: BackendOptions) -> AbstractAsyncContextManager[Backend]:
    """The backend called `name`.

    Raises:
        ConfigError: there is none of that name.
    """
    if name not in BACKENDS:
        near = nearest(name, list(BACKENDS)) or "."
        raise ConfigError(f"backend: there is no {name!r}{near} There are: {', '.join(BACKENDS)}")
    return BACKENDS[name](sources, options)


def backend_name(name: str, sources: Sequence[str]) -> str:
    """`name`, or if it is empty the one that fits: `bm25` for a folder, `remote` for an address."""
    return name or ("remote" if any(map(is_address, sources)) else "bm25")
