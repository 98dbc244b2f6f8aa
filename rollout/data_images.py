"""Images of a row of a data set: verl's `images` column with `<image>` in the text, or image parts in the messages."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..schemas.errors import ConfigError

_MARKER = "<image>"
_COLUMNS = ("images", "image")


def with_images(row: dict[str, Any], messages: Any, folder: Path, where: str) -> tuple[Any, list[Any]]:
    """The messages with a part for each image, and the images: paths, data URIs or files' bytes.

    Args:
        row: an image is a path (relative to `folder`), a data URI, bytes, or a dictionary with `bytes`, `path`, `image`
            or `url`.

    Raises:
        ConfigError: there are not as many images as places for them, or an image is of none of these kinds.
    """
    column = next((row[name] for name in _COLUMNS if row.get(name) is not None), None)
    listed = None if column is None else [*column] if isinstance(column, list | tuple) else [column]
    if not isinstance(messages, list):
        return messages, []
    left = None if listed is None else iter(listed)
    images: list[Any] = []
    found = [_message(message, left, images, folder, where) for message in messages]
    unplaced = 0 if left is None else len(list(left))
    if unplaced:
        raise ConfigError(f"{where}: 'images' has {len(images) + unplaced}, and the prompt {len(images)} '<image>'")
    return found, images


def _message(message: Any, left: Iterator[Any] | None, images: list[Any], folder: Path, where: str) -> Any:
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, str) and left is not None and _MARKER in content:
        pieces = [piece for piece in re.split(f"({_MARKER})", content) if piece]
        content = [{"type": "image"} if piece == _MARKER else {"type": "text", "text": piece} for piece in pieces]
    if not isinstance(content, list):
        return message
    return {**message, "content": [_part(part, left, images, folder, where) for part in content]}


def _part(part: Any, left: Iterator[Any] | None, images: list[Any], folder: Path, where: str) -> Any:
    if not isinstance(part, dict) or part.get("type") not in ("image", "image_url"):
        # A Parquet file gives every part all keys.
        return {key: value for key, value in part.items() if value is not None} if isinstance(part, dict) else part
    if left is None:
        given = part.get("image") or part.get("image_url")
    else:
        given = next(left, None)
        if given is None:
            raise ConfigError(f"{where}: the prompt has more '<image>' than 'images' has images ({len(images)})")
    source = _source(given, folder, where)
    images.append(source)
    return {"type": "image", "image": _name(source)}


def _source(given: Any, folder: Path, where: str) -> str | bytes:
    if isinstance(given, dict):
        given = next((given[key] for key in ("bytes", "image", "url", "path") if given.get(key)), None)
    if isinstance(given, bytes):
        return given
    if not isinstance(given, str):
        raise ConfigError(f"{where}: an image must be a path, a data URI, or bytes (got {type(given).__name__})")
    if "://" in given.split(",", 1)[0]:
        raise ConfigError(f"{where}: the image {given[:80]!r} is an address; images are read from files only")
    return given if given.startswith("data:") else str(folder / given)


def _name(source: str | bytes) -> str:
    """What stands for the image in a record: its path, or its content's hash."""
    if isinstance(source, str) and not source.startswith("data:"):
        return source
    data = source if isinstance(source, bytes) else source.encode()
    return f"sha256:{hashlib.sha256(data).hexdigest()[:32]}"
