"""Backends that ask other services."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import Any

from ..schemas.errors import ConfigError
from ..schemas.redacted import redacted
from ..schemas.validation import validated
from ..serving.bearer import RETRIEVER_TOKEN_VARIABLE, authorization, environment_token
from .backend import Backend, BackendOptions, is_address
from .combined.replicas import ReplicatedRetriever
from .combined.shards import ShardedRetriever
from .retriever import Retriever
from .services.elasticsearch import ElasticsearchRetriever
from .services.remote import RemoteRetriever

_ASKED_TOGETHER = 64


@asynccontextmanager
async def open_remote(sources: Sequence[str], options: BackendOptions) -> AsyncIterator[Backend]:
    """Other services that speak Search-R1's `/retrieve`; several addresses are replicas of one. The environment's token
    is shown to them, if there is one.

    Raises:
        ConfigError: a source is no address, or there twice.
    """
    retriever = replicated(sources, options, showing(environment_token(RETRIEVER_TOKEN_VARIABLE)))
    async with aclosing(retriever):
        yield _remote(retriever, options, lambda: {"urls": [redacted(url) for url in sources]})


@asynccontextmanager
async def open_shards(sources: Sequence[str], options: BackendOptions) -> AsyncIterator[Backend]:
    """Services that each have a part of the corpus; within a source, commas part the replicas of one shard.

    Raises:
        ConfigError: as `open_remote`.
    """
    kind = showing(environment_token(RETRIEVER_TOKEN_VARIABLE))
    replicas = [[url for url in source.split(",") if url] for source in sources]
    retriever = ShardedRetriever([replicated(urls, options, kind) for urls in replicas], options.merge)
    shown = [",".join(map(redacted, urls)) for urls in replicas]
    async with aclosing(retriever):
        yield _remote(retriever, options, lambda: {"shards": shown, "merge": options.merge})


@asynccontextmanager
async def open_elasticsearch(sources: Sequence[str], options: BackendOptions) -> AsyncIterator[Backend]:
    """An index of Elasticsearch or OpenSearch, as http://host:9200/INDEX; several are replicas.

    Raises:
        ConfigError: as `open_remote`; or an address names no index.
    """
    retriever = replicated(sources, options, ElasticsearchRetriever)
    async with aclosing(retriever):
        yield _remote(retriever, options, lambda: {"urls": [redacted(url) for url in sources]})


@asynccontextmanager
async def open_qdrant(sources: Sequence[str], options: BackendOptions) -> AsyncIterator[Backend]:
    """A collection of Qdrant, as http://host:6333/COLLECTION, and the model that it was filled with.

    Raises:
        ConfigError: no model is named, it cannot be loaded, or is of another dimension than the collection; or there is
            not exactly one address.
        InfraError: there is no such collection, or no answer.
    """
    if len(sources) != 1 or not is_address(sources[0]):
        raise ConfigError(f"backend qdrant: needs one address, such as http://host:6333/wiki (got {list(sources)})")
    if options.embedding_model is None:
        raise ConfigError("backend qdrant: embedding_model is missing: the model that the collection was filled with")
    try:
        from .dense.embedder import EmbedderConfig, open_embedder_aside
        from .services.qdrant import QdrantRetriever
    except ImportError as error:
        raise ConfigError(f"backend qdrant: {error}; install it with: pip install 'rollbox[dense]'") from error
    given = {"model": options.embedding_model, "url": options.embedding_url, "device": options.device}
    embedder = await open_embedder_aside(validated(EmbedderConfig, given, "backend qdrant"))
    prefix = embedder.prefixes[0] if options.query_prefix is None else options.query_prefix
    async with aclosing(
        QdrantRetriever(sources[0], options.connections, embedder, prefix, options.vector)
    ) as retriever:
        await retriever.check()
        shown = {"url": redacted(sources[0]), "embedding_model": options.embedding_model}
        yield _remote(retriever, options, lambda: shown)


def showing(token: str | None) -> Callable[..., RemoteRetriever]:
    """A client of `/retrieve` that shows `token`."""
    return partial(RemoteRetriever, headers=authorization(token))


def replicated(sources: Sequence[str], options: BackendOptions, kind: Callable[..., Retriever]) -> Retriever:
    """One server, which is asked again where it fails, or several, where the next try is another's.

    Raises:
        ConfigError: a source is no address, or there twice.
    """
    for source in sources:
        if not is_address(source):
            raise ConfigError(f"backend: {source!r} is no address, such as http://host:8000/retrieve")
    if not sources or len(set(sources)) < len(sources):
        raise ConfigError(f"backend: needs addresses, each once (got {list(sources)})")
    if len(sources) == 1:
        return kind(sources[0], options.connections)
    return ReplicatedRetriever([(source, kind(source, options.connections, max_attempts=1)) for source in sources])


def _remote(retriever: Retriever, options: BackendOptions, info: Callable[[], dict[str, Any]]) -> Backend:
    return Backend(retriever, options.probe, info, _ASKED_TOGETHER, options.connections)
