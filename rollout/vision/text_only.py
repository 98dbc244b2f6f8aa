"""Messages as a template or a server takes them that knows of texts only."""

from __future__ import annotations

from typing import Any

from ...schemas.message import content_text, image_parts


def without_images(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages with `[image]` in the text for each image; those without images as they are."""
    return [
        {**message, "content": content_text(message["content"])} if image_parts([message]) else message
        for message in messages
    ]
