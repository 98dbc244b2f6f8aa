"""Data sets in the layout that verl's `RLHFDataset` reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from ..rollout.json_lines import json_lines
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
        ConfigError: pyarrow is not installed, or the samples do not fit one table.
    """
    pyarrow = _pyarrow()
    rows = [verl_row(sample, split, index) for index, sample in enumerate(samples)]
    try:
        table = pyarrow.Table.from_pylist(rows)
    except pyarrow.ArrowException as error:
        raise ConfigError(f"{path}: the samples do not fit one table: {error}") from error
    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(table, path)


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
        rows = list(islice(_rows(path), limit))
    except (OSError, ValueError, ConfigError) as error:
        raise ConfigError(f"{where}: {path} cannot be read: {error}") from error
    if not rows:
        raise ConfigError(f"{where}: {path} holds no rows")
    return rows


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    if path.suffix in (".json", ".jsonl"):
        yield from (row for row, _ in json_lines(path))
        return
    parquet = _pyarrow().parquet.ParquetFile(path)
    for batch in parquet.iter_batches(batch_size=256):
        yield from batch.to_pylist()


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ConfigError(
            "parquet: pyarrow is missing; run this in verl's environment (pip install pyarrow)"
        ) from error
    return pyarrow
