"""A conversation as the loop keeps it, in the form that OpenAI's chat API insists on."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from ...schemas.message import content_text, image_parts

_OF_TOOLS = {"type": "text", "text": "The images of the tool output above:"}


def wire_messages(messages: list[dict[str, Any]], image_uris: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Give calls their ids and their answers the same ones; arguments become JSON text.

    The loop answers the calls of a turn in their order, and after them what could not be read as a call. The latter has
    no call that it could belong to, so it is sent as the user's. A tool message may hold text only there, so images of
    tools follow behind the answers of their turn in a message of the user's.

    Args:
        image_uris: one for each image part of the messages.
    """
    wire: list[dict[str, Any]] = []
    unanswered: list[str] = []
    left = iter(image_uris)
    for position, message in enumerate(_images_apart(messages)):
        if image_parts([message]):
            message = {**message, "content": [_wire_part(part, left) for part in message["content"]]}
        if message["role"] == "assistant":
            calls = message.get("tool_calls") or []
            unanswered = [call.get("id") or f"call_{position}_{index}" for index, call in enumerate(calls)]
            if calls:
                wired = [_wire_call(*pair) for pair in zip(unanswered, calls, strict=True)]
                message = {**message, "tool_calls": wired}
        elif message["role"] == "tool":
            message = {**message, "tool_call_id": unanswered.pop(0)} if unanswered else {**message, "role": "user"}
        wire.append(message)
    return wire


def _images_apart(messages: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The messages, with those of tools' images that are images behind the last of them."""
    seen: list[dict[str, Any]] = []
    for message in messages:
        if seen and message["role"] != "tool":
            yield {"role": "user", "content": [_OF_TOOLS, *seen]}
            seen = []
        if message["role"] == "tool" and (parts := image_parts([message])):
            seen += parts
            message = {**message, "content": content_text(message["content"])}
        yield message
    if seen:
        yield {"role": "user", "content": [_OF_TOOLS, *seen]}


def _wire_part(part: Any, image_uris: Iterator[str]) -> Any:
    if not image_parts([{"content": [part]}]):
        return part
    return {"type": "image_url", "image_url": {"url": next(image_uris)}}


def _wire_call(call_id: str, call: dict[str, Any]) -> dict[str, Any]:
    function = call["function"]
    arguments = function["arguments"]
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    return {"id": call_id, "type": "function", "function": {"name": function["name"], "arguments": arguments}}
