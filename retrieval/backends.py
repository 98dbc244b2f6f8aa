"""Backends: the sources of passages that a server can be started with, by name."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from ..schemas.errors import ConfigError
from ..schemas.validation import nearest
from .index.opened import OpenedIndex, open_index
from .local import LocalRetriever
from .remote import RemoteRetriever
from .retriever import Retriever

_logger = logging.getLogger(__name__)
_PROBE_WORDS = 6


class BackendOptions(BaseModel):
    """
    Attributes:
        threads: searches at a time in this process; the default is one per usable core.
        connections: requests at a time to a remote service.
        strict: refuse an index whose corpus has changed.
        verify: compare every byte of an index with its checksums; None does so up to 1 GiB, which takes a second.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    threads: int = Field(default_factory=lambda: len(os.sched_getaffinity(0)), ge=1, le=256)
    connections: int = Field(default=64, ge=1, le=4096)
    strict: bool = False
    verify: bool | None = None


@dataclass(frozen=True, slots=True)
class Backend:
    """A source of passages, open.

    Attributes:
        probe: a query that must find something; what is asked at start-up.
        info: what `/v1/info` says of it, as JSON.
        batch: queries that are worth asking together. at_a_time: calls of `retriever` that run side by side.
        lasting: whether answers stay right while the server runs.
    """

    retriever: Retriever
    probe: str
    info: Callable[[], dict[str, Any]]
    batch: int = 1
    at_a_time: int = 1
    lasting: bool = False


Opener = Callable[[Sequence[str], BackendOptions], AbstractAsyncContextManager[Backend]]


@asynccontextmanager
async def open_bm25(sources: Sequence[str], options: BackendOptions) -> AsyncIterator[Backend]:
    """BM25 over one index folder.

    Raises:
        ConfigError: it is not one, or unusable; with `strict` also when its corpus has changed.
    """
    index = open_one_index("bm25", sources, options)
    retriever = LocalRetriever(index.bm25, options.threads)
    async with aclosing(retriever):
        yield Backend(retriever, probe_of(index), lambda: index_info(index), 8, options.threads, lasting=True)


@asynccontextmanager
async def open_remote(sources: Sequence[str], options: BackendOptions) -> AsyncIterator[Backend]:
    """Another service that speaks Search-R1's `/retrieve`.

    Raises:
        ConfigError: there is not exactly one address.
    """
    if len(sources) != 1 or not is_address(sources[0]):
        raise ConfigError(f"backend remote: needs one address, such as http://host:8000/retrieve (got {list(sources)})")
    retriever = RemoteRetriever(sources[0], options.connections)
    async with aclosing(retriever):
        yield Backend(retriever, "capital of Peru", lambda: {"url": sources[0]}, 64, options.connections)


BACKENDS: dict[str, Opener] = {"bm25": open_bm25, "remote": open_remote}


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


def open_one_index(backend: str, sources: Sequence[str], options: BackendOptions) -> OpenedIndex:
    """
    Raises:
        ConfigError: there is not exactly one folder, or as `open_index`; with `strict` when its corpus has changed.
    """
    if len(sources) != 1 or is_address(sources[0]):
        raise ConfigError(f"backend {backend}: needs one index folder (got {list(sources)})")
    index = open_index(Path(sources[0]), verify=options.verify)
    if index.corpus == "changed":
        text = f"index {index.folder}: its corpus has changed since: {index.corpus_changes[0]}"
        if options.strict:
            raise ConfigError(f"{text}; build it again with --restart, or serve it without --strict")
        _logger.warning("%s; what is served is the corpus as it was", text)
    return index


def probe_of(index: OpenedIndex) -> str:
    """The first words of the first passage, which must be found."""
    (first,) = index.bm25.passages_at([0])
    return " ".join(f"{first.title} {first.text}".split()[:_PROBE_WORDS])


def index_info(index: OpenedIndex) -> dict[str, Any]:
    """What `/v1/info` says of an index. `folder_is`: `current`, `replaced` or `deleted` since it was opened."""
    return {
        "index": str(index.folder),
        "folder_is": index.state,
        "passages": index.manifest.passages,
        "bad_records": index.manifest.bad_records,
        "format": index.manifest.format,
        "software": index.manifest.software,
        "corpus": index.corpus,
        "corpus_changes": index.corpus_changes,
    }


def is_address(source: str) -> bool:
    return source.startswith(("http://", "https://"))
