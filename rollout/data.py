"""Read questions from JSONL or Parquet files: GSM8K's own layout, verl's, and a generic one."""

from __future__ import annotations

import json
import os
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic_core import PydanticSerializationError

from ..schemas.errors import ConfigError
from ..schemas.trajectory import Sample
from ..schemas.validation import validated
from .data_images import with_images
from .table_rows import table_rows

DATA_DIR_VARIABLE = "ROLLBOX_DATA"
_SUFFIXES = ("", ".jsonl", ".parquet", "_test.jsonl", "_test.parquet", "/test.parquet")


def find_data(name: str) -> Path:
    """The file that `name` means: a path, or a name such as `gsm8k` in the folder that ROLLBOX_DATA names.

    Raises:
        ConfigError: there is none; the message says where it was looked for.
    """
    if _is_file(Path(name)):
        return Path(name)
    folder = os.environ.get(DATA_DIR_VARIABLE)
    tried = [Path(folder) / f"{name}{suffix}" for suffix in _SUFFIXES] if folder else []
    for path in tried:
        if _is_file(path):
            return path
    looked = f"nor in {folder} ({DATA_DIR_VARIABLE})" if folder else f"and {DATA_DIR_VARIABLE} names no folder of data"
    raise ConfigError(f"data: {name!r} is not a file, {looked}")


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # such as a name that is too long
        return False


def load_samples(path: str | Path, data_source: str | None = None, limit: int | None = None) -> list[Sample]:
    """Read up to `limit` samples.

    A row is GSM8K's `{"question", "answer"}` (data source `openai/gsm8k`), verl's `{"prompt", "data_source",
    "reward_model": {"ground_truth"}, "extra_info"}`, or
    `{"messages" | "prompt" | "question", "ground_truth" | "answer", "data_source"?, "id"?, "tools_kwargs"?}`; images as
    in `data_images`.

    Args:
        path: of a JSONL file, or a Parquet file by its ending.
        data_source: overrides the rows' own; a row without one is taken as `openai/gsm8k`.

    Raises:
        ConfigError: the file cannot be read, or a row is wrong; the message names file and line.
    """
    file = Path(path)
    rows = table_rows(file)
    samples = [
        _sample(row, where, data_source, number, file.parent)
        for number, (row, where) in enumerate(islice(rows, limit), start=1)
    ]
    if not samples:
        raise ConfigError(f"{file}: holds no samples")
    _check_ids(samples, file)
    return samples


def with_system(samples: list[Sample], text: str) -> list[Sample]:
    """The samples with a system message before all others."""
    message = {"role": "system", "content": text}
    return [sample.model_copy(update={"messages": [message, *sample.messages]}) for sample in samples]


def _sample(row: Any, where: str, data_source: str | None, number: int, folder: Path) -> Sample:
    if not isinstance(row, dict):
        raise ConfigError(f"{where}: must be an object (got {type(row).__name__})")
    extra_info = row.get("extra_info") or {}
    messages, images = with_images(row, _messages(row, where), folder, where)
    fields = {
        "sample_id": str(_first(row, "id", "sample_id", default=number)),
        "data_source": data_source or row.get("data_source") or "openai/gsm8k",
        "messages": messages,
        "images": images,
        "ground_truth": _ground_truth(row, where),
        "extra_info": extra_info,
        "tools_kwargs": row.get("tools_kwargs") or _tools_kwargs(extra_info),
    }
    sample = validated(Sample, fields, where)
    _check_messages(sample, where)
    try:
        sample.model_dump_json()
    except PydanticSerializationError as error:
        # Half a surrogate pair in JSON, or bytes in Parquet: no record of a trajectory could hold it.
        raise ConfigError(f"{where}: holds what JSON in UTF-8 cannot: {error}") from error
    return sample


def _check_messages(sample: Sample, where: str) -> None:
    for index, message in enumerate(sample.messages):
        at = f"{where}: messages.{index}"
        if not isinstance(message.get("role"), str):
            raise ConfigError(f"{at}.role: must be a text such as 'user' (got {message.get('role')!r})")
        content = message.get("content")
        parts = content if isinstance(content, list) else []
        if not isinstance(content, str | list | None):
            raise ConfigError(f"{at}.content: must be a text or a list of parts (got {type(content).__name__})")
        for number, part in enumerate(parts):
            if not isinstance(part, dict) or not isinstance(part.get("type"), str):
                raise ConfigError(f"{at}.content.{number}: must be a part such as {{'type': 'text', 'text': …}}")


def _first(row: dict[str, Any], *names: str, default: Any = None) -> Any:
    return next((row[name] for name in names if row.get(name) is not None), default)


def _ground_truth(row: dict[str, Any], where: str) -> str:
    reward_model = row.get("reward_model")
    answer = _first(row, "ground_truth", "answer")
    if answer is None and isinstance(reward_model, dict):
        answer = reward_model.get("ground_truth")
    if answer is None:
        raise ConfigError(f"{where}: has neither 'ground_truth' nor 'answer' nor 'reward_model.ground_truth'")
    return answer if isinstance(answer, str) else json.dumps(answer)


def _tools_kwargs(extra_info: Any) -> Any:
    found = extra_info.get("tools_kwargs") if isinstance(extra_info, dict) else None
    if not isinstance(found, dict):
        return found or {}  # the sample's own check names the field
    # A Parquet column has one shape for all rows, so that tools which a row does not name are there as None.
    return {name: value for name, value in found.items() if value is not None}


def _messages(row: dict[str, Any], where: str) -> Any:
    for key in ("messages", "prompt", "question"):
        if row.get(key) is not None:
            value = row[key]
            return [{"role": "user", "content": value}] if isinstance(value, str) else value
    raise ConfigError(f"{where}: has none of 'messages', 'prompt', 'question'")


def _check_ids(samples: list[Sample], file: Path) -> None:
    seen: set[str] = set()
    for sample in samples:
        if sample.sample_id in seen:
            raise ConfigError(f"{file}: two samples have the id {sample.sample_id!r}")
        seen.add(sample.sample_id)
