"""A row of verl's data set as a sample of ours."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ..schemas.errors import ConfigError
from ..schemas.trajectory import Sample
from ..schemas.validation import validated


def sample_of(row: Mapping[str, Any], images: Sequence[Any] = ()) -> Sample:
    """The sample of the keyword arguments that verl gives an agent loop.

    Args:
        row: `raw_prompt` (chat messages), and where the data set has them `data_source`, `reward_model`,
            `extra_info`, `tools_kwargs`, `index`, `uid`.
        images: of Pillow, one for each image part of the prompt, as verl read them.

    Raises:
        ConfigError: there is no prompt, or it holds more than text and images.
    """
    extra_info = dict(row.get("extra_info") or {})
    sample_id = str(row.get("uid") or row.get("index", extra_info.get("index", "")))
    fields = {
        "sample_id": sample_id,
        "data_source": str(row.get("data_source") or "unknown"),
        "messages": [_message(message, sample_id) for message in row.get("raw_prompt", ())],
        "ground_truth": _ground_truth(row),
        "extra_info": extra_info,
        "tools_kwargs": _tools_kwargs(row, extra_info),
        "images": list(images),
    }
    return validated(Sample, fields, f"sample {sample_id!r}")


def selected_tools(row: Mapping[str, Any], names: tuple[str, ...]) -> tuple[str, ...]:
    """The tools of this row: verl's `extra_info.tool_selection`, or all.

    Raises:
        ConfigError: a tool is selected that is not loaded.
    """
    selection = (row.get("extra_info") or {}).get("tool_selection")
    if selection is None or len(selection) == 0:
        return names
    unknown = [name for name in selection if name not in names]
    if unknown:
        raise ConfigError(
            f"extra_info.tool_selection: no tool {unknown[0]!r} is loaded; there are: {', '.join(names) or 'none'}"
        )
    return tuple(name for name in names if name in set(selection))


def _message(message: Mapping[str, Any], sample_id: str) -> dict[str, Any]:
    if isinstance(message.get("content"), list):
        message = {**message, "content": [_part(part, sample_id) for part in message["content"]]}
    # A parquet file gives every message all keys, with None where a message has no such thing.
    return {key: value for key, value in message.items() if value is not None}


def _part(part: Mapping[str, Any], sample_id: str) -> dict[str, Any]:
    if part.get("type") == "image":
        return {"type": "image"}
    if part.get("type") != "text":
        raise ConfigError(
            f"sample {sample_id!r}: rollbox_agent takes text and images (got a part of type {part.get('type')!r}); use "
            "verl's tool_agent for others"
        )
    return {"type": "text", "text": part.get("text") or ""}


def _ground_truth(row: Mapping[str, Any]) -> str | None:
    truth = (row.get("reward_model") or {}).get("ground_truth")
    if truth is None or isinstance(truth, str):
        return truth
    return json.dumps(truth, ensure_ascii=False, default=str)


def _tools_kwargs(row: Mapping[str, Any], extra_info: Mapping[str, Any]) -> dict[str, Any]:
    given = row.get("tools_kwargs") or extra_info.get("tools_kwargs") or {}
    return {
        name: {key: value for key, value in kwargs.items() if value is not None}
        for name, kwargs in given.items()
        if kwargs is not None
    }
