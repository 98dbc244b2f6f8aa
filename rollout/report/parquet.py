"""Trajectories as a Parquet table, for data frames and for training on saved rollouts."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

from ...schemas.trajectory import Trajectory

_ROWS_AT_A_TIME = 256


def write_parquet(jsonl: Path, path: Path) -> None:
    """Rewrite `trajectories.jsonl` as a table, some hundred rows at a time. Needs pyarrow.

    The columns are `schema()`: token lists as lists of integers, what has no fixed shape (messages, calls, the sample's
    own fields) as JSON text, rewards as a map from part to value.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    table_schema = schema()
    with jsonl.open(encoding="utf-8") as lines, pq.ParquetWriter(path, table_schema, compression="zstd") as writer:
        while rows := [_row(Trajectory.model_validate_json(line)) for line in islice(lines, _ROWS_AT_A_TIME)]:
            writer.write_table(pa.Table.from_pylist(rows, schema=table_schema))


def schema() -> Any:
    """The columns, as a pyarrow schema."""
    import pyarrow as pa

    ids = pa.list_(pa.int32())
    span = pa.struct([("kind", pa.string()), ("turn", pa.int32()), ("start", pa.int32()), ("end", pa.int32())])
    size = [(name, pa.int32()) for name in ("width", "height", "start", "end")]
    columns = [
        *((name, pa.string()) for name in ("trajectory_id", "sample_id", "data_source", "ground_truth", "stop_reason")),
        *(("prompt_ids", ids), ("response_ids", ids)),
        *(("response_mask", pa.list_(pa.int8())), ("response_logprobs", pa.list_(pa.float32()))),
        ("images", pa.list_(pa.struct([("file", pa.string()), *size]))),
        *(("spans", pa.list_(span)), ("assistant_texts", pa.list_(pa.string()))),
        *(("messages", pa.string()), ("records", pa.string()), ("extra_info", pa.string())),
        *(("reward", pa.float64()), ("reward_parts", pa.map_(pa.string(), pa.float64())), ("correct", pa.bool_())),
        *(("num_turns", pa.int32()), ("num_calls", pa.int32()), ("token_exact", pa.bool_())),
        *(("infra_failed", pa.bool_()), ("error", pa.string())),
        *((name, pa.float64()) for name in ("generate_s", "queue_s", "run_s", "total_s")),
    ]
    return pa.schema(columns)


def _row(trajectory: Trajectory) -> dict[str, Any]:
    sample, rewards = trajectory.sample, trajectory.rewards
    same = {
        "trajectory_id",
        "prompt_ids",
        "response_ids",
        "response_mask",
        "response_logprobs",
        "spans",
        "images",
        "assistant_texts",
        "token_exact",
        "infra_failed",
        "error",
    }
    return {
        **trajectory.model_dump(include=same),
        **trajectory.timing.model_dump(),
        "sample_id": sample.sample_id,
        "data_source": sample.data_source,
        "ground_truth": sample.ground_truth,
        "stop_reason": trajectory.stop_reason.value,
        "messages": json.dumps(trajectory.messages),
        "records": json.dumps([record.model_dump(mode="json") for record in trajectory.records]),
        "extra_info": json.dumps(sample.extra_info),
        "reward": None if rewards is None else rewards.total,
        "reward_parts": None if rewards is None else list(rewards.parts.items()),
        "correct": None if rewards is None else rewards.correct,
        "num_turns": trajectory.num_turns,
        "num_calls": len(trajectory.records),
    }
