"""Builds the dense part of an index: embeds all passages, batch by batch, then makes the faiss index."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ...schemas.errors import ConfigError, InfraError
from ..index.file_checks import IndexFile, described
from ..passages import Passage
from .embedder import Embedder, EmbedderConfig, Vectors
from .manifest import (
    MANIFEST,
    PROGRESS,
    VECTORS,
    DenseManifest,
    PassageStore,
    VectorRecord,
    check_model,
    fingerprint_of,
    probe_of,
    read_record,
    write_record,
)
from .nearest import Kind, build_nearest, import_faiss
from .vectors import VectorWriter, map_vectors

_CHUNK_ROWS = 1024
_CHUNK_TIMEOUT_S = 3600.0
_UNFINISHED = "unfinished"
Progress = Callable[[int, int], None]


async def build_dense(
    folder: Path,
    store: PassageStore,
    config: EmbedderConfig,
    embedder: Embedder,
    kind: Kind = "flat",
    progress: Progress | None = None,
) -> DenseManifest:
    """Write the dense part to `folder`, or finish one that was begun; a kill loses 1,024 passages' work at most.

    Memory is bounded, whatever the number of passages, except for the graph of `hnsw`. Vectors of the same model and
    passages that are there already are kept: another `kind` is made from them.

    Args:
        folder: `dense/` in the index folder. config: what `embedder` was opened with.
        progress: called with the passages done and all of them.

    Raises:
        ConfigError: `folder` holds vectors of another model, other prefixes or other passages; or the disk is full.
        InfraError: the embedding server fails for good. Starting again goes on from there.
    """
    import_faiss()
    with _on_disk(folder):
        await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
        record = await _begun(folder, store, config, embedder)
        record = await _embed_all(folder, store, embedder, record, progress)
        vectors = map_vectors(folder / VECTORS, record.passages, record.dimension)
        files = await asyncio.to_thread(_build_aside, kind, folder, vectors)
        manifest = DenseManifest(**record.model_dump(), kind=kind, files=files)
        write_record(folder / MANIFEST, manifest)
    return manifest


def _build_aside(kind: Kind, folder: Path, vectors: Vectors) -> dict[str, IndexFile]:
    """Make the faiss index in a folder of its own: the one that is there may be mapped by a server, which would answer
    from half of the new one, and end where the file is shorter for a moment. Returns the files of the dense part."""
    aside = folder / _UNFINISHED
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir()
    try:
        build_nearest(kind, aside, vectors)
        files = described([folder / VECTORS, *aside.iterdir()])
        # From here to the new manifest the files may not belong together: a kill must not leave them to be served.
        (folder / MANIFEST).unlink(missing_ok=True)
        for file in sorted(aside.iterdir()):
            with file.open("rb") as written:
                os.fsync(written.fileno())
            file.replace(folder / file.name)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return files


@contextmanager
def _on_disk(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        fix = "make room and start the same command again: it goes on from here"
        raise ConfigError(f"{folder}: cannot be written: {error.strerror or error}; {fix}") from error


def remove_dense(folder: Path) -> None:
    """Delete the dense part, finished or not."""
    shutil.rmtree(folder, ignore_errors=True)


def embedded_text(passage: Passage, prefix: str) -> str:
    """What of a passage is embedded."""
    return f"{prefix}{passage.title}\n{passage.text}" if passage.title else prefix + passage.text


def with_prefixes(config: EmbedderConfig, embedder: Embedder) -> EmbedderConfig:
    """`config` with the model's own prefixes where none are given."""
    query, passage = embedder.prefixes
    return config.model_copy(
        update={
            "query_prefix": query if config.query_prefix is None else config.query_prefix,
            "passage_prefix": passage if config.passage_prefix is None else config.passage_prefix,
        }
    )


async def _begun(folder: Path, store: PassageStore, config: EmbedderConfig, embedder: Embedder) -> VectorRecord:
    """The record of the vectors in `folder`, new where there are none."""
    if not len(store):
        raise ConfigError(f"{folder}: there are no passages to embed")
    probe = await probe_of(embedder, _CHUNK_TIMEOUT_S)
    wanted = VectorRecord(
        embedder=with_prefixes(config, embedder),
        dimension=probe.shape[1],
        passages=len(store),
        fingerprint=await asyncio.to_thread(fingerprint_of, store),
        probe=[float(number) for number in probe[0]],
    )
    path = folder / PROGRESS
    if not path.exists():
        (folder / VECTORS).unlink(missing_ok=True)
        write_record(path, wanted)
        return wanted
    begun = read_record(path, VectorRecord)
    _check_goes_on(folder, begun, wanted)
    check_model(begun, probe)
    return begun


def _check_goes_on(folder: Path, begun: VectorRecord, wanted: VectorRecord) -> None:
    same = {
        "passages": (begun.fingerprint, wanted.fingerprint),
        "model": (begun.model, wanted.model),
        "dimension": (begun.dimension, wanted.dimension),
        "query_prefix": (begun.embedder.query_prefix, wanted.embedder.query_prefix),
        "passage_prefix": (begun.embedder.passage_prefix, wanted.embedder.passage_prefix),
    }
    for name, (old, new) in same.items():
        if old != new:
            raise ConfigError(
                f"{folder}: was begun with another {name} ({old!r}, now {new!r}); give the same, or delete the folder"
            )


async def _embed_all(
    folder: Path, store: PassageStore, embedder: Embedder, record: VectorRecord, progress: Progress | None
) -> VectorRecord:
    prefix = record.embedder.passage_prefix or ""
    if progress is not None:
        progress(record.rows_done, record.passages)
    with VectorWriter(folder / VECTORS, record.dimension, record.rows_done) as writer:
        while writer.rows < record.passages:
            rows = range(writer.rows, min(writer.rows + _CHUNK_ROWS, record.passages))
            passages = await asyncio.to_thread(store.passages_at, rows)
            texts = [embedded_text(passage, prefix) for passage in passages]
            vectors, _ = await embedder.embed(texts, _CHUNK_TIMEOUT_S)
            if len(vectors) != len(rows):
                raise InfraError(f"embedding model {record.model}: gave {len(vectors)} vectors for {len(rows)} texts")
            writer.append(vectors)
            writer.commit()
            record = record.model_copy(update={"rows_done": writer.rows})
            write_record(folder / PROGRESS, record)
            if progress is not None:
                progress(writer.rows, record.passages)
    return record
