"""Pictures: images on their way into a conversation, with their tokens counted and named after their pixels."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from ...schemas.errors import ToolError
from .image_tokens import ImageTokens

FOLDER = "images"


@dataclass(frozen=True, slots=True)
class Picture:
    """Attributes:
    image: an RGB image of Pillow. file: `images/HASH.png`, the same for the same pixels.
    tokens: how many stand for it; 0 where they are not known.
    """

    image: Any
    file: str
    tokens: int = 0

    @property
    def part(self) -> dict[str, Any]:
        """The part of a message that stands for it, as templates of models that see take it."""
        return {"type": "image", "image": self.file}


def pictures_of(images: Sequence[Any], counter: ImageTokens | None) -> tuple[list[Picture], list[ToolError]]:
    """Pictures, and why others of the images have no place. Blocks: use a thread.

    Args:
        counter: None leaves the tokens uncounted, for a chat server.
    """
    pictures: list[Picture] = []
    problems: list[ToolError] = []
    for image in images:
        try:
            tokens = counter.count(image) if counter is not None else 0
        except ToolError as error:
            problems.append(error)
            continue
        digest = hashlib.sha256(f"{image.width}x{image.height}:".encode() + image.tobytes()).hexdigest()
        pictures.append(Picture(image, f"{FOLDER}/{digest[:32]}.png", tokens))
    return pictures, problems


def write_png(image: Any, path: Path) -> None:
    """Write without loss, unless it is there. Blocks. A reader never finds half a file."""
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(f".{uuid4().hex}")
    image.save(unfinished, format="PNG", compress_level=1)
    unfinished.replace(path)
