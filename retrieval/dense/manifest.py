"""What a dense part was built with, and whether passages and model still are the same."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ...schemas.errors import ConfigError
from ...schemas.redacted import redacted
from ..index.file_checks import IndexFile
from ..index.manifest import write_at_once
from ..passages import Passage
from .embedder import Embedder, EmbedderConfig, NoAccessError, Vectors, check_dimension
from .nearest import Kind

MANIFEST, PROGRESS, VECTORS = "manifest.json", "progress.json", "vectors.f32"
PROBE_TEXT = "The quick brown fox jumps over the lazy dog."
_FORMAT = 1
_SAMPLED_ROWS = 64
# Another batch, device or float width changes the sixth digit; another model changes everything.
_SAME_MODEL = 0.99


class PassageStore(Protocol):
    """Where the passages of the rows are kept, such as a BM25 index on disk."""

    def __len__(self) -> int: ...

    def passages_at(self, rows: Sequence[int]) -> list[Passage]: ...


class VectorRecord(BaseModel):
    """What the vectors were made with.

    Attributes:
        embedder: model, server and prefixes. dimension: numbers per vector. passages: how many there are to be.
        rows_done: how many vectors are on the disk. fingerprint: of the passages, see `fingerprint_of`.
        probe: the vector of `PROBE_TEXT`, by which the model is known again.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: int = Field(default=_FORMAT, ge=1)
    embedder: EmbedderConfig
    dimension: int = Field(ge=1)
    passages: int = Field(ge=1)
    rows_done: int = Field(default=0, ge=0)
    fingerprint: str
    probe: list[float]

    @property
    def model(self) -> str:
        return self.embedder.model


class DenseManifest(VectorRecord):
    """Of a finished dense part.

    Attributes:
        kind: how the nearest vectors are found. files: what it consists of, by name.
    """

    kind: Kind
    files: dict[str, IndexFile] = Field(default_factory=dict)


Record = TypeVar("Record", bound=VectorRecord)


def read_record(path: Path, model: type[Record]) -> Record:
    """
    Raises:
        ConfigError: it is missing, damaged, or of a newer format.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(
            f"{path.parent}: has no finished dense part; build it with: "
            "rollbox retriever index CORPUS --out INDEX --dense MODEL"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    try:
        record = model.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise ConfigError(f"{path}: {where or 'file'}: {first['msg']}; build the dense part anew") from error
    if record.format > _FORMAT:
        raise ConfigError(f"{path}: format {record.format} is newer than this Rollbox knows ({_FORMAT}); upgrade it")
    return record


def write_record(path: Path, record: VectorRecord) -> None:
    """Replace the file in one step that survives a power cut. The server's address is written without its password."""
    url = record.embedder.url
    written = record.embedder.model_copy(update={"url": None if url is None else redacted(url)})
    write_at_once(path, record.model_copy(update={"embedder": written}).model_dump_json(indent=1).encode())


def fingerprint_of(store: PassageStore) -> str:
    """A digest of the number of passages and of 64 of them, evenly spread."""
    count = len(store)
    rows = sorted({int(row) for row in np.linspace(0, count - 1, min(count, _SAMPLED_ROWS))})
    digest = hashlib.sha256(str(count).encode())
    for passage in store.passages_at(rows):
        digest.update("\0".join((passage.id, passage.title, passage.text)).encode())
    return digest.hexdigest()[:32]


async def check_same(manifest: DenseManifest, store: PassageStore, embedder: Embedder, timeout_s: float = 60.0) -> None:
    """That the vectors belong to these passages and this model.

    Raises:
        ConfigError: they do not, or as `probe_of`. InfraError: the embedding server fails.
    """
    if len(store) != manifest.passages or await asyncio.to_thread(fingerprint_of, store) != manifest.fingerprint:
        raise ConfigError(
            f"dense part: is of other passages ({manifest.passages}) than the index ({len(store)}); build it anew"
        )
    check_model(manifest, await probe_of(embedder, timeout_s))


async def probe_of(embedder: Embedder, timeout_s: float) -> Vectors:
    """The vector of `PROBE_TEXT`, shape (1, dimension).

    Raises:
        ConfigError: the embedding server wants a password or a token. InfraError: it fails.
    """
    try:
        probe, _ = await embedder.embed([PROBE_TEXT], timeout_s)
    except NoAccessError as error:
        raise ConfigError(str(error)) from error
    return probe


def check_model(record: VectorRecord, probe: Vectors) -> None:
    """That `probe`, the vector of `PROBE_TEXT` now, shape (1, dimension), is of the model of `record`.

    Raises:
        ConfigError: it is not.
    """
    check_dimension(probe, record.dimension, record.model)
    similarity = float(probe[0] @ np.asarray(record.probe, dtype=np.float32))
    if similarity < _SAME_MODEL:
        raise ConfigError(
            f"embedding model {record.model}: is another one than the index was built with (the same text has a "
            f"cosine of {similarity:.3f}); use that one, or build the dense part anew"
        )
