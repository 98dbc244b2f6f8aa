"""The nearest vectors by faiss: exact (flat), or approximate by inverted lists (ivf) or a graph (hnsw)."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from ...schemas.errors import ConfigError
from .embedder import Vectors

Kind: TypeAlias = Literal["flat", "ivf", "hnsw"]
KINDS: tuple[Kind, ...] = get_args(Kind)
Found: TypeAlias = tuple[NDArray[np.float32], NDArray[np.int64]]

_ADD_ROWS = 65_536
_BLOCK_ROWS = 131_072
_TRAIN_ROWS_PER_LIST = 64
_HNSW_LINKS, _HNSW_BUILD_WIDTH, _HNSW_SEARCH_WIDTH = 32, 200, 128
_LISTS = "ivf.lists"
_ROW_NUMBER_BYTES = 8
_PROBED_SHARE, _MIN_PROBES = 16, 32
_SHOWN_CHARS = 200


class Nearest(Protocol):
    """Thread-safe, and releases the interpreter lock."""

    def search(self, queries: Vectors, top_k: int) -> Found:
        """Scores (cosines, the best first) and rows, each of shape (queries, top_k); row -1 is no row."""
        ...


class FlatNearest:
    """Compares with every vector, in the mapped file itself: there is no second copy."""

    def __init__(self, vectors: Vectors) -> None:
        self._faiss = import_faiss()
        self._vectors = vectors

    def search(self, queries: Vectors, top_k: int) -> Found:
        scores, rows = self._faiss.knn(queries, self._vectors, top_k, metric=self._faiss.METRIC_INNER_PRODUCT)
        return scores, rows


class IvfNearest:
    """Compares with the vectors of the lists whose centres are nearest: a sixteenth of the lists, 32 at least."""

    def __init__(self, path: Path, rows: int, dimension: int) -> None:
        self._faiss = import_faiss()
        self._index = _read(path, rows, dimension, self._faiss.IO_FLAG_SKIP_IVF_DATA | self._faiss.IO_FLAG_READ_ONLY)
        _map_lists(self._index, path.with_name(_LISTS))
        lists = self._index.nlist
        self._settings = self._faiss.SearchParametersIVF(nprobe=min(lists, max(_MIN_PROBES, lists // _PROBED_SHARE)))

    def search(self, queries: Vectors, top_k: int) -> Found:
        scores, rows = self._index.search(queries, top_k, params=self._settings)
        return scores, rows


class HnswNearest:
    """Walks a graph of near vectors (Malkov and Yashunin, 2016)."""

    def __init__(self, path: Path, rows: int, dimension: int) -> None:
        self._faiss = import_faiss()
        self._index = _read(path, rows, dimension, self._faiss.IO_FLAG_MMAP_IFC)

    def search(self, queries: Vectors, top_k: int) -> Found:
        settings = self._faiss.SearchParametersHNSW(efSearch=max(_HNSW_SEARCH_WIDTH, 2 * top_k))
        scores, rows = self._index.search(queries, top_k, params=settings)
        return scores, rows


def open_nearest(kind: Kind, folder: Path, vectors: Vectors) -> Nearest:
    """The index that `build_nearest` wrote to `folder`, mapped.

    Raises:
        ConfigError: it is missing, cannot be read, or is of other vectors; or faiss is not installed.
    """
    rows, dimension = vectors.shape
    if kind == "flat":
        return FlatNearest(vectors)
    opened = IvfNearest if kind == "ivf" else HnswNearest
    return opened(folder / f"{kind}.faiss", rows, dimension)


def build_nearest(kind: Kind, folder: Path, vectors: Vectors) -> None:
    """Write the index of `vectors` to `folder`; `flat` needs none.

    `ivf` takes memory for its training sample and one block of 131,072 vectors, `hnsw` for all vectors and their links.

    Raises:
        ConfigError: faiss is not installed, or the disk is full.
    """
    try:
        if kind == "ivf":
            _build_ivf(folder / "ivf.faiss", vectors)
        elif kind == "hnsw":
            _build_hnsw(folder / "hnsw.faiss", vectors)
    except RuntimeError as error:
        raise ConfigError(f"{folder}: {kind} cannot be built: {_reason(error)}; the same command goes on") from error


def import_faiss() -> Any:
    """
    Raises:
        ConfigError: faiss is not installed.
    """
    try:
        import faiss
    except ImportError as error:
        raise ConfigError("dense search needs faiss: pip install 'rollbox[dense]'") from error
    return faiss


def _read(path: Path, rows: int, dimension: int, flags: int) -> Any:
    try:
        index = import_faiss().read_index(str(path), flags)
    except RuntimeError as error:
        raise ConfigError(f"{path}: is no faiss index that can be read: {_reason(error)}; build it anew") from error
    if (index.ntotal, index.d) != (rows, dimension):
        raise ConfigError(
            f"{path}: holds {index.ntotal} vectors of {index.d} numbers, not {rows} of {dimension}; build it anew"
        )
    return index


def _reason(error: RuntimeError) -> str:
    """What faiss says, without its place in the source."""
    return (str(error).rpartition("Error: ")[2] or str(error))[:_SHOWN_CHARS]


def _map_lists(index: Any, path: Path) -> None:
    """Map the lists where they are now: the index remembers where they were written, and folders move.

    Raises:
        ConfigError: the file is missing, or of another size, which faiss would answer with a crash.
    """
    lists = import_faiss().downcast_InvertedLists(index.invlists)
    held_bytes = path.stat().st_size if path.is_file() else 0
    if held_bytes != lists.totsize:
        raise ConfigError(f"{path}: holds {held_bytes} bytes and not {lists.totsize}; build it anew")
    lists.filename = str(path)
    lists.do_mmap()


def _build_hnsw(path: Path, vectors: Vectors) -> None:
    faiss = import_faiss()
    index = faiss.IndexHNSWFlat(vectors.shape[1], _HNSW_LINKS, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = _HNSW_BUILD_WIDTH
    for start in range(0, len(vectors), _ADD_ROWS):
        index.add(np.ascontiguousarray(vectors[start : start + _ADD_ROWS]))
    faiss.write_index(index, str(path))


def _build_ivf(path: Path, vectors: Vectors) -> None:
    """Blocks are filled one after the other and merged on disk, so that all vectors never are in memory at once."""
    from faiss.contrib.ondisk import merge_ondisk

    faiss = import_faiss()
    rows, dimension = vectors.shape
    _check_room(path.parent, 2 * vectors.nbytes)
    # faiss wants 39 training vectors for each list.
    lists = max(1, min(round(4 * math.sqrt(rows)), rows // 39))
    index = faiss.IndexIVFFlat(faiss.IndexFlatIP(dimension), dimension, lists, faiss.METRIC_INNER_PRODUCT)
    chosen = np.random.default_rng(0).choice(rows, min(rows, lists * _TRAIN_ROWS_PER_LIST), replace=False)
    index.train(np.ascontiguousarray(vectors[np.sort(chosen)]))
    blocks: list[Path] = []
    for start in range(0, rows, _BLOCK_ROWS):
        stop = min(start + _BLOCK_ROWS, rows)
        index.add_with_ids(np.ascontiguousarray(vectors[start:stop]), np.arange(start, stop))
        blocks.append(path.with_name(f"block{len(blocks)}.faiss"))
        faiss.write_index(index, str(blocks[-1]))
        index.reset()
    _check_room(path.parent, vectors.nbytes + rows * _ROW_NUMBER_BYTES)
    merge_ondisk(index, [str(block) for block in blocks], str(path.with_name(_LISTS)))
    faiss.write_index(index, str(path))
    for block in blocks:
        block.unlink()


def _check_room(folder: Path, wanted_bytes: int) -> None:
    """Lists are written through a memory map: where the disk is full, that is no error but the end of the process.

    Raises:
        ConfigError: the disk has less room.
    """
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes < wanted_bytes:
        raise ConfigError(
            f"{folder}: the disk has {free_bytes >> 20} MiB free, and {(wanted_bytes >> 20) + 1} are needed; make room "
            "and start the same command again: it goes on from here"
        )
