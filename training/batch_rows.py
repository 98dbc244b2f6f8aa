"""The trajectories of one training batch as our records tell of them, and the files they are written to."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

RECORD = "rollbox"
"""The key of our record in verl's `extra_fields`."""


@dataclass(frozen=True, slots=True)
class BatchRow:
    """One trajectory of a batch.

    Attributes:
        key: verl's, `{uid}_{session}_{index}`.
        record: what `rollbox_agent` tells of it (see `trajectory_output`); None when another loop ran it.
        reward_info: the reward's parts. scores: [R] rewards at the tokens; None before they are known.
        response_mask: [R].
        trained: False where resampling left it out.
    """

    key: str
    record: dict[str, Any] | None
    reward_info: dict[str, Any]
    scores: list[float] | None
    response_mask: list[int]
    trained: bool = True

    @property
    def infra_failed(self) -> bool:
        return self.record is not None and bool(self.record["infra_failed"])


def write_records(rows: Sequence[BatchRow], directory: Path, step: int) -> Path:
    """Write a step's rows to `step_000001.jsonl`, a line each, and return the file's path."""
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / f"step_{step:06d}.jsonl"
    lines = (json.dumps({"step": step, **asdict(row)}, ensure_ascii=False, default=str) for row in rows)
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return file
