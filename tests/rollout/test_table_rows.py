"""Values in Parquet that Python has none for."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rollbox.rollout.table_rows import table_rows
from rollbox.schemas.errors import ConfigError


def not_utf8() -> pa.Array:
    return pa.Array.from_buffers(pa.string(), 1, pa.array([b"caf\xe9"]).buffers())


@pytest.mark.parametrize("column", [not_utf8(), pa.array([10**7], pa.date32())], ids=["text", "date"])
def test_what_cannot_be_a_value_of_pythons_is_named_with_its_file(column: pa.Array, tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": column}), tmp_path / "rows.parquet")
    with pytest.raises(ConfigError, match=r"rows.parquet: cannot be read: "):
        list(table_rows(tmp_path / "rows.parquet"))
