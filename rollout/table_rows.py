"""Read the rows of a table: JSON lines or Parquet."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from ..schemas.errors import ConfigError
from .json_lines import json_lines

_ROWS_AT_A_TIME = 256


def table_rows(
    file: Path, *, columns: Collection[str] | None = None, rows_at_a_time: int = _ROWS_AT_A_TIME
) -> Iterator[tuple[Any, str]]:
    """(row, where it stands) of each row, some at a time.

    Args:
        file: Parquet by its ending, else one JSON value on each line.
        columns: of Parquet, the only ones that are read, where the file has them; all of JSON are read.

    Raises:
        ConfigError: the file cannot be read, has none of `columns` (Parquet), a line is not JSON, or pyarrow is needed
            and is not installed.
    """
    if file.suffix == ".parquet":
        return _parquet_rows(file, columns, rows_at_a_time)
    return json_lines(file)


def _parquet_rows(file: Path, columns: Collection[str] | None, rows_at_a_time: int) -> Iterator[tuple[Any, str]]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise ConfigError(f"{file}: reading Parquet needs pyarrow: pip install 'rollbox[rollout]'") from error
    number = 0
    try:
        with pq.ParquetFile(file) as table:
            names = table.schema_arrow.names
            wanted = None if columns is None else [name for name in names if name in columns]
            if wanted == []:
                read = ", ".join(sorted(columns or ()))
                raise ConfigError(f"{file}: has none of the columns {read}; its columns are: {', '.join(names)}")
            for batch in table.iter_batches(rows_at_a_time, columns=wanted):
                for row in batch.to_pylist():
                    yield row, f"{file}: row {number}"
                    number += 1
    # A text that is not UTF-8 and a date that Python has not are found only where they are made Python's.
    except (OSError, ValueError, OverflowError, pa.ArrowException) as error:
        raise ConfigError(f"{file}: cannot be read: {error}") from error
