"""Data sets in the layout that verl's `RLHFDataset` reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

from ..rollout.table_rows import table_rows
from ..schemas.errors import ConfigError
from ..schemas.trajectory import Sample


def verl_row(sample: Sample, split: str, index: int) -> dict[str, Any]:
    """One row: prompt, ground truth, and what tools are to be given for it."""
    extra_info = {**sample.extra_info, "split": split, "index": index, "sample_id": sample.sample_id}
    if sample.tools_kwargs:
        # Only where there are any: a parquet file cannot hold an empty structure.
        extra_info["tools_kwargs"] = sample.tools_kwargs
    return {
        "data_source": sample.data_source,
        "prompt": sample.messages,
        "ability": "tools",
        "reward_model": {"style": "rule", "ground_truth": sample.ground_truth},
        "extra_info": extra_info,
    }


def write_parquet(samples: Sequence[Sample], path: Path, split: str) -> None:
    """Write samples to a parquet file, and its folder where it is missing.

    Raises:
        ConfigError: pyarrow is not installed, the samples do not fit one table, or the file cannot be written.
    """
    pyarrow = _pyarrow()
    rows = [verl_row(sample, split, index) for index, sample in enumerate(samples)]
    with _finished_whole(path) as beside:
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), beside)


def write_rows(rows: Iterable[dict[str, Any]], path: Path, rows_at_a_time: int = 256) -> int:
    """Write rows of one shape to a parquet file, some at a time, and its folder where it is missing.

    Returns:
        How many there were. Where there were none, no file is written.

    Raises:
        ConfigError: pyarrow is not installed, a row does not fit the table of the first ones, or the file cannot be
            written.
    """
    pyarrow, rows = _pyarrow(), iter(rows)
    if not (batch := list(islice(rows, rows_at_a_time))):
        return 0
    count = 0
    with _finished_whole(path) as beside:
        table = pyarrow.Table.from_pylist(batch)
        with pyarrow.parquet.ParquetWriter(beside, table.schema) as writer:
            while batch:
                writer.write_table(pyarrow.Table.from_pylist(batch, schema=table.schema))
                count += len(batch)
                batch = list(islice(rows, rows_at_a_time))
    return count


@contextmanager
def _finished_whole(path: Path) -> Iterator[Path]:
    """A file beside `path`, which takes its place at the end. What fails or is interrupted leaves none."""
    beside = path.with_name(f".{path.name}.unfinished")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield beside
        beside.replace(path)
    except (OSError, UnicodeError, _pyarrow().ArrowException) as error:
        raise ConfigError(f"{path}: cannot be written: {error}") from error
    finally:
        with suppress(OSError):  # its folder is none, say
            beside.unlink(missing_ok=True)


def read_rows(path: Path, where: str, limit: int) -> list[dict[str, Any]]:
    """The first rows of a parquet or JSONL file.

    Args:
        where: the key that names the file, for the message.

    Raises:
        ConfigError: the file is missing, cannot be read, or is empty.
    """
    if not path.is_file():
        raise ConfigError(f"{where}: there is no file {path}; make it with `rollbox data` or give its path")
    try:
        rows = [row for row, _ in islice(table_rows(path), limit)]
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error
    if not rows:
        raise ConfigError(f"{where}: {path} holds no rows")
    return rows


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ConfigError(
            "parquet: pyarrow is missing; run this in verl's environment (pip install pyarrow)"
        ) from error
    return pyarrow
