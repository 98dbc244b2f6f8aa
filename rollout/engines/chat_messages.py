"""A conversation as the loop keeps it, in the form that OpenAI's chat API insists on."""

from __future__ import annotations

import json
from typing import Any


def wire_messages(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Give calls their ids and their answers the same ones; arguments become JSON text.

    The loop answers the calls of a turn in their order, and after them what could not be read as a call. The latter has
    no call that it could belong to, so it is sent as the user's.
    """
    wire: list[dict[str, Any]] = []
    unanswered: list[str] = []
    for position, message in enumerate(messages):
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


def _wire_call(call_id: str, call: dict[str, Any]) -> dict[str, Any]:
    function = call["function"]
    arguments = function["arguments"]
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    return {"id": call_id, "type": "function", "function": {"name": function["name"], "arguments": arguments}}
