"""Read questions from JSONL files: GSM8K's own layout, and a generic one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..schemas.errors import ConfigError
from ..schemas.trajectory import Sample
from ..schemas.validation import validated


def load_samples(path: str | Path, data_source: str | None = None, limit: int | None = None) -> list[Sample]:
    """Read up to `limit` samples.

    A line is GSM8K's `{"question", "answer"}` (data source `openai/gsm8k`), or
    `{"messages" | "prompt" | "question", "ground_truth" | "answer", "data_source"?, "id"?, "tools_kwargs"?}`.

    Args:
        data_source: overrides the lines' own; a line without one is taken as `openai/gsm8k`.

    Raises:
        ConfigError: the file cannot be read, or a line is wrong; the message names file and line.
    """
    file = Path(path)
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: cannot be read: {error}") from error
    samples: list[Sample] = []
    for number, line in enumerate(lines, start=1):
        if limit is not None and len(samples) >= limit:
            break
        if line.strip():
            samples.append(_sample(line, f"{file}:{number}", data_source, number))
    if not samples:
        raise ConfigError(f"{file}: holds no samples")
    return samples


def _sample(line: str, where: str, data_source: str | None, number: int) -> Sample:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: not JSON: {error}") from error
    if not isinstance(row, dict):
        raise ConfigError(f"{where}: must be an object (got {type(row).__name__})")
    answer = row.get("ground_truth", row.get("answer"))
    if answer is None:
        raise ConfigError(f"{where}: has neither 'ground_truth' nor 'answer'")
    fields = {
        "sample_id": str(row.get("id", number)),
        "data_source": data_source or row.get("data_source", "openai/gsm8k"),
        "messages": _messages(row, where),
        "ground_truth": str(answer),
        "extra_info": row.get("extra_info", {}),
        "tools_kwargs": row.get("tools_kwargs", {}),
    }
    return validated(Sample, fields, where)


def _messages(row: dict[str, Any], where: str) -> Any:
    for key in ("messages", "prompt", "question"):
        if key in row:
            value = row[key]
            return [{"role": "user", "content": value}] if isinstance(value, str) else value
    raise ConfigError(f"{where}: has none of 'messages', 'prompt', 'question'")
