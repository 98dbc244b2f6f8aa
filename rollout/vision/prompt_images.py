"""The images of a sample's own messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...schemas.errors import ConfigError, ToolError
from ...schemas.message import image_parts
from ...schemas.trajectory import Sample
from ...tools.images import ImageLimits, image_of
from .image_tokens import ImageTokens
from .picture import Picture, pictures_of


def prompt_pictures(sample: Sample, limits: ImageLimits, counter: ImageTokens | None) -> tuple[Sample, list[Picture]]:
    """The sample with its images named after their pixels, and these. Blocks: use a thread.

    Raises:
        ConfigError: an image cannot be read, or there are not as many as the messages have parts for.
    """
    where = f"sample {sample.sample_id!r}"
    parts = len(image_parts(sample.messages))
    if parts != len(sample.images):
        raise ConfigError(f"{where}: its messages have {parts} image parts, and it has {len(sample.images)} images")
    try:
        images = [image_of(_source(given, where), limits) for given in sample.images]
    except ToolError as error:
        raise ConfigError(f"{where}: an image of the prompt cannot be shown: {error}") from error
    pictures, problems = pictures_of(images, counter)
    if problems:
        raise ConfigError(f"{where}: an image of the prompt cannot be shown: {problems[0]}")
    left = iter(pictures)
    messages = [_named(message, left) for message in sample.messages]
    return sample.model_copy(update={"messages": messages}), pictures


def _source(given: Any, where: str) -> Any:
    if isinstance(given, str) and not given.startswith("data:"):
        try:
            return Path(given).read_bytes()
        except OSError as error:
            raise ConfigError(f"{where}: the image {given} cannot be read: {error.strerror}") from error
    return given


def _named(message: dict[str, Any], pictures: Any) -> dict[str, Any]:
    if not image_parts([message]):
        return message
    content = [next(pictures).part if image_parts([{"content": [part]}]) else part for part in message["content"]]
    return {**message, "content": content}
