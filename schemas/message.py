"""Chat messages: a content is a text, or a list of parts such as `{"type": "text", "text": …}` and images."""

from __future__ import annotations

from typing import Any


def content_text(content: Any) -> str:
    """A message's content as text: a string, or a list of parts of which those that are no text are named."""
    if isinstance(content, list):
        return "\n".join(_part_text(part) for part in content)
    return "" if content is None else str(content)


def image_parts(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The parts that stand for images, in the order of the conversation."""
    contents = [message.get("content") for message in messages]
    parts = [part for content in contents if isinstance(content, list) for part in content]
    return [part for part in parts if isinstance(part, dict) and part.get("type") in ("image", "image_url")]


def _part_text(part: Any) -> str:
    if isinstance(part, dict):
        return str(part["text"]) if "text" in part else f"[{part.get('type', 'part')}]"
    return str(part)
