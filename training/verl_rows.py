"""A row of verl's data set as a sample of ours."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
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
        ConfigError: a column is not of verl's shape, there is no prompt, or it holds more than text and images.
    """
    sample_id = str(row.get("uid") or row.get("index", ""))
    extra_info = dict(_mapping(row, "extra_info", sample_id))
    sample_id = sample_id or str(extra_info.get("index", ""))
    fields = {
        "sample_id": sample_id,
        "data_source": str(row.get("data_source") or "unknown"),
        "messages": _messages(row, sample_id),
        "ground_truth": truth_text(_mapping(row, "reward_model", sample_id).get("ground_truth")),
        "extra_info": extra_info,
        "tools_kwargs": _tools_kwargs(row, extra_info, sample_id),
        "images": list(images),
    }
    return validated(Sample, fields, f"sample {sample_id!r}")


def selected_tools(row: Mapping[str, Any], names: tuple[str, ...]) -> tuple[str, ...]:
    """The tools of this row: verl's `extra_info.tool_selection`, or all.

    Raises:
        ConfigError: a tool is selected that is not loaded.
    """
    selection = (row.get("extra_info") or {}).get("tool_selection")
    if selection is None:
        return names
    if isinstance(selection, str) or not isinstance(selection, Iterable):
        raise ConfigError(f"extra_info.tool_selection: must be a list of names of tools (got {selection!r})")
    if not (selection := list(selection)):
        return names
    unknown = [name for name in selection if name not in names]
    if unknown:
        raise ConfigError(
            f"extra_info.tool_selection: no tool {unknown[0]!r} is loaded; there are: {', '.join(names) or 'none'}"
        )
    return tuple(name for name in names if name in set(selection))


def _mapping(row: Mapping[str, Any], column: str, sample_id: str) -> Mapping[str, Any]:
    value = row.get(column)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ConfigError(
            f"sample {sample_id!r}: {column}: must hold named fields, as verl's data sets do (got "
            f"{type(value).__name__} {str(value)[:80]!r})"
        )
    return value


def _messages(row: Mapping[str, Any], sample_id: str) -> list[dict[str, Any]]:
    prompt = row.get("raw_prompt", ())
    if isinstance(prompt, str | Mapping) or not isinstance(prompt, Iterable):
        raise ConfigError(
            f"sample {sample_id!r}: the prompt must be a list of chat messages (got {type(prompt).__name__} "
            f"{str(prompt)[:80]!r}); write it as [{{role: user, content: ...}}]"
        )
    return [_message(message, sample_id) for message in prompt]


def _message(message: Any, sample_id: str) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise ConfigError(
            f"sample {sample_id!r}: a chat message must have a role and a content (got {str(message)[:80]!r})"
        )
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


def truth_text(ground_truth: Any) -> str | None:
    """verl's `reward_model.ground_truth`, of whatever shape, as our scores read it: JSON where it is no text."""
    if ground_truth is None or isinstance(ground_truth, str):
        return ground_truth
    return json.dumps(ground_truth, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else str(value)  # numpy's arrays, and what verl made of a column


def _tools_kwargs(row: Mapping[str, Any], extra_info: Mapping[str, Any], sample_id: str) -> dict[str, Any]:
    given = _mapping(row, "tools_kwargs", sample_id) or _mapping(extra_info, "tools_kwargs", sample_id)
    return {
        name: {key: value for key, value in _mapping(given, name, sample_id).items() if value is not None}
        for name, kwargs in given.items()
        if kwargs is not None
    }
