"""What a source of passages is to a server, and the settings with which one is opened."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from ..schemas.errors import ConfigError
from .combined.fusion import RANK_CONSTANT
from .combined.shards import Merge
from .index.opened import OpenedIndex, open_index
from .retriever import Retriever

_logger = logging.getLogger(__name__)
_PROBE_WORDS, _PROBED_PASSAGES = 6, 1000


class BackendOptions(BaseModel):
    """
    Attributes:
        threads: searches at a time in this process; the default is one per usable core.
        connections: requests at a time to a remote service.
        strict: refuse an index whose corpus has changed.
        verify: compare every byte of an index with its checksums; None does so up to 1 GiB, which takes a second.
        embedding_model, embedding_url, device: where the model of a dense index is now, if not where it was built; for
            Qdrant, what its collection was filled with. See `dense.embedder.EmbedderConfig`.
        query_prefix: before each query for Qdrant; None: what the model asks for. vector: the name of its vectors.
        weights: of the parts of a hybrid, in their order. rank_constant: of its fusion.
        merge: how the hits of shards become one list, see `shards.ShardedRetriever`.
        probe: a query to which remote services must find something at start-up.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    threads: int = Field(default_factory=lambda: len(os.sched_getaffinity(0)), ge=1, le=256)
    connections: int = Field(default=64, ge=1, le=4096)
    strict: bool = False
    verify: bool | None = None
    embedding_model: str | None = Field(default=None, min_length=1)
    embedding_url: str | None = Field(default=None, pattern=r"^https?://[^/\s]+")
    device: str | None = None
    query_prefix: str | None = None
    vector: str | None = None
    weights: list[Annotated[float, Field(ge=0, allow_inf_nan=False)]] = Field(default_factory=list)
    rank_constant: float = Field(default=RANK_CONSTANT, gt=0, allow_inf_nan=False)
    merge: Merge = "score"
    probe: str = Field(default="capital of Peru", min_length=1)


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
    """The first words of the first passage that can be found by them: one may consist of signs alone."""
    probe = ""
    for passage in islice(index.bm25.passages(), _PROBED_PASSAGES):
        probe = " ".join(f"{passage.title} {passage.text}".split()[:_PROBE_WORDS])
        if index.bm25.search(probe, 1):
            break
    return probe


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
