"""The vectors of all passages in one file: written in batches that survive a kill, read through a memory map."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from ...schemas.errors import ConfigError
from .embedder import Vectors

_FLOAT_BYTES = 4


class VectorWriter:
    """Appends rows; as a context manager. What `commit` returned from is on the disk.

    Args:
        rows: how many are there already and are kept; what a killed writer left behind them is cut off.

    Raises:
        ConfigError: the file holds fewer.
    """

    def __init__(self, path: Path, dimension: int, rows: int) -> None:
        self._path = path
        self._dimension = dimension
        self.rows = rows
        kept_bytes = rows * dimension * _FLOAT_BYTES
        # Unbuffered: what did not fit on the disk would be tried again at the end.
        self._file = path.open("r+b" if path.exists() else "w+b", buffering=0)
        held_bytes = self._file.seek(0, os.SEEK_END)
        if held_bytes < kept_bytes:
            self._file.close()
            raise ConfigError(f"{path}: holds {held_bytes} bytes, {kept_bytes} were written; delete its folder")
        self._file.truncate(kept_bytes)
        self._file.seek(kept_bytes)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._file.close()

    def append(self, vectors: Vectors) -> None:
        """
        Raises:
            ConfigError: of another dimension. OSError: the disk is full.
        """
        if vectors.shape[1:] != (self._dimension,):
            raise ConfigError(f"{self._path}: vectors of {vectors.shape[1]} numbers, not of {self._dimension}")
        left = memoryview(np.ascontiguousarray(vectors, dtype="<f4").tobytes())
        while left:
            left = left[self._file.write(left) :]
        self.rows += len(vectors)

    def commit(self) -> None:
        os.fsync(self._file.fileno())


def map_vectors(path: Path, rows: int, dimension: int) -> Vectors:
    """The file as a matrix of shape (rows, dimension), which takes no memory that the system cannot take back.

    Raises:
        ConfigError: the file is missing, or has another size.
    """
    wanted_bytes = rows * dimension * _FLOAT_BYTES
    try:
        held_bytes = path.stat().st_size
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}; build the dense part anew") from error
    if held_bytes != wanted_bytes:
        raise ConfigError(
            f"{path}: holds {held_bytes} bytes and not {wanted_bytes}, {rows} vectors of {dimension} numbers; "
            "it was cut off or replaced: build the dense part anew"
        )
    return np.memmap(path, dtype="<f4", mode="r", shape=(rows, dimension))
