"""What turns texts into vectors, and the settings that say which one does."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any, Protocol, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from ...schemas.errors import ConfigError, InfraError

Vectors: TypeAlias = NDArray[np.float32]

_BGE_QUERY = "Represent this sentence for searching relevant passages: "


class NoAccessError(InfraError):
    """The embedding server wants a password or a token, or another one."""


class Embedder(Protocol):
    """Used from event loops; what blocks runs in threads.

    Attributes:
        prefixes: what the model wants before a query and before a passage. It is the caller who puts them there.
    """

    prefixes: tuple[str, str]

    async def embed(self, texts: Sequence[str], timeout_s: float) -> tuple[Vectors, int]:
        """One row of length 1 for each text, shape (texts, dimension), and how many retries it took.

        Raises:
            OverloadedError: the embedding server is full.
            InfraError: it failed, or had no answer within `timeout_s` seconds.
        """
        ...

    async def aclose(self) -> None:
        """Give back what the running event loop holds of it."""
        ...


class EmbedderConfig(BaseModel):
    """Which model embeds, and where.

    Attributes:
        model: a folder of sentence-transformers, a name in the Hugging Face cache, or a name that the server knows.
        url: the whole address of an OpenAI-compatible server, such as http://host:8000/v1/embeddings; without one the
            model runs in this process.
        query_prefix, passage_prefix: put before each text. None: what the model asks for, see `Embedder.prefixes`.
        device: where a model in this process runs, such as cpu or cuda:0; None: a GPU where there is one.
        batch_size: texts per request or forward pass.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str = Field(min_length=1)
    url: str | None = Field(default=None, pattern=r"^https?://[^/\s]+")
    query_prefix: str | None = None
    passage_prefix: str | None = None
    device: str | None = None
    batch_size: int = Field(default=32, ge=1, le=4096)

    @model_validator(mode="after")
    def _device_is_ours(self) -> Self:
        if self.url is not None and self.device is not None:
            raise ValueError("device: is for models in this process, not for a server's")
        return self


def known_prefixes(model: str) -> tuple[str, str]:
    """Prefix of queries and of passages, by the model's name, as the models' cards ask for them."""
    name = PurePath(model).name.lower()
    if "e5" in name.replace("_", "-").split("-") and "instruct" not in name:
        return "query: ", "passage: "
    if name.startswith("bge-") and "-en" in name:
        return _BGE_QUERY, ""
    return "", ""


def open_embedder(config: EmbedderConfig) -> Embedder:
    """The embedder of `config`; a model of this process is loaded here, which takes seconds and blocks.

    Raises:
        ConfigError: the model is not there or cannot be loaded, or a package is missing.
    """
    if config.url is not None:
        from .embedding_server import EmbeddingServer

        return EmbeddingServer(config.url, config.model, config.batch_size)
    from .sentence_model import SentenceModel

    return SentenceModel(config.model, config.device, config.batch_size)


async def open_embedder_aside(config: EmbedderConfig) -> Embedder:
    """As `open_embedder`, in a thread."""
    return await asyncio.to_thread(open_embedder, config)


def unit_rows(values: Any) -> Vectors:
    """`values` as float32 with rows of length 1, so that inner products are cosines.

    Raises:
        ValueError: it is no matrix of finite numbers, or a row is zero.
    """
    vectors = np.ascontiguousarray(values, dtype=np.float32)
    if vectors.ndim != 2 or vectors.shape[1] < 1:
        raise ValueError(f"vectors of one length are needed (got shape {vectors.shape})")
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    if not np.isfinite(lengths).all() or not (lengths > 0).all():
        raise ValueError("a vector is zero or holds a number that is not finite")
    return np.ascontiguousarray(vectors / lengths, dtype=np.float32)


def check_dimension(vectors: Vectors, dimension: int, model: str) -> None:
    """
    Raises:
        ConfigError: the vectors have another dimension than the index.
    """
    if vectors.shape[1] != dimension:
        raise ConfigError(
            f"embedding model {model}: gives vectors of {vectors.shape[1]} numbers, the index holds {dimension}; "
            "use the model that the index was built with, or build it anew"
        )
