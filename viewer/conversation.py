"""A trajectory as it is read: prompt, turns, and in each turn its calls with what is known of them."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from itertools import zip_longest
from statistics import fmean
from typing import Any

from markupsafe import Markup

from ..schemas.call_record import CallRecord
from ..schemas.message import content_text
from ..schemas.trajectory import Trajectory
from .shown_text import Folded, folded, shown, thinking_apart

IMAGE_FILE = re.compile(r"images/[0-9a-f]{32}\.png", re.ASCII)
_BLOCK_CHARS = 80
_OUTPUT_CHARS = 1200


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument. `block`: it has lines of its own, such as a program."""

    name: Markup
    value: Folded
    block: bool


@dataclass(frozen=True, slots=True)
class Call:
    """One call: as the model wrote it, the record of it, and what the model was told; each None when there is none.

    Attributes:
        images: files of the images that it was shown.
    """

    name: Markup
    arguments: list[Argument] | None
    record: CallRecord | None
    output: Folded | None
    metrics: Folded | None
    error: Folded | None = None
    images: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Message:
    """`parts`: whether it is thinking, and the text. `images`: files of its images."""

    role: str
    parts: list[tuple[bool, Folded]]
    images: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Turn:
    """One assistant turn.

    Attributes:
        start, end: its generated tokens in `response_ids`; None when no span has this turn.
        mean_logprob: over these tokens. step_reward: summed over its calls.
        raw: the text as sampled, tool calls included; None where the messages hold the same.
    """

    index: int
    message: Message
    calls: list[Call]
    raw: Folded | None = None
    start: int | None = None
    end: int | None = None
    mean_logprob: float | None = None
    step_reward: float = 0.0
    errors: int = 0
    others: list[Message] = field(default_factory=list)


def prompt_messages(trajectory: Trajectory) -> list[Message]:
    return [_message(message) for message in trajectory.messages[: prompt_length(trajectory)]]


def prompt_length(trajectory: Trajectory) -> int:
    """How many of `messages` are the prompt's."""
    pairs = zip(trajectory.messages, trajectory.sample.messages, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), len(trajectory.sample.messages))


def turns(trajectory: Trajectory) -> list[Turn]:
    """The assistant turns in order, each with its calls paired with the tool messages that follow it."""
    found: list[Turn] = []
    outputs: list[Any] = []
    message: dict[str, Any] | None = None
    others: list[Message] = []
    for following in [*trajectory.messages[prompt_length(trajectory) :], None]:
        role = None if following is None else following.get("role")
        if following is not None and role == "tool":
            outputs.append(following.get("content") or "")
        elif following is not None and role != "assistant":
            others.append(_message(following))
        else:
            if message is not None or outputs or others:
                found.append(_turn(trajectory, len(found), message or {}, outputs))
                found[-1].others = others
            message, outputs, others = following, [], []
    return found


def pretty(value: Any) -> str:
    """A JSON value on as many lines as reading it takes."""
    return json.dumps(value, indent=2, ensure_ascii=False)


def _message(message: dict[str, Any]) -> Message:
    parts = thinking_apart(content_text(message.get("content")))
    images = image_files(message.get("content"))
    return Message(str(message.get("role", "")), [(thinks, folded(text)) for thinks, text in parts], images)


def image_files(content: Any) -> list[str]:
    """The files of a content's images; only names such as a run writes: whoever wrote the line is not trusted."""
    parts = content if isinstance(content, list) else []
    files = [part.get("image") for part in parts if isinstance(part, dict)]
    return [file for file in files if isinstance(file, str) and IMAGE_FILE.fullmatch(file)]


def _turn(trajectory: Trajectory, index: int, message: dict[str, Any], outputs: list[Any]) -> Turn:
    records = [record for record in trajectory.records if record.turn == index]
    written = [_written(call) for call in message.get("tool_calls") or []]
    calls = [_call(*parts) for parts in zip_longest(records, written, outputs)]
    turn = Turn(
        index,
        _message({"role": "assistant", **message}),
        calls,
        step_reward=sum(record.tool_reward for record in records),
        errors=sum(record.error_kind is not None for record in records),
    )
    if index < len(trajectory.assistant_texts):
        text = trajectory.assistant_texts[index]
        turn.raw = folded(text) if text.strip() != content_text(message.get("content")).strip() else None
    for span in trajectory.spans:
        if span.kind == "assistant" and span.turn == index and span.end > span.start:
            turn.start, turn.end = span.start, span.end
            turn.mean_logprob = fmean(trajectory.response_logprobs[span.start : span.end])
    return turn


def _written(call: Any) -> tuple[str, Any]:
    """Name and arguments of a call as it stands in a message, whichever way that spells it."""
    function = call.get("function", call) if isinstance(call, dict) else {}
    if not isinstance(function, dict):
        return str(function), None
    return str(function.get("name", "")), function.get("arguments")


def _call(record: CallRecord | None, call: tuple[str, Any] | None, content: Any) -> Call:
    output = None if content is None else content_text(content)
    name, written = call or ("", None)
    arguments = written if record is None or record.arguments is None else record.arguments
    error = record.error if record is not None else None
    return Call(
        name=shown((record.tool if record is not None else "") or name),
        arguments=_arguments(arguments),
        record=record,
        output=None if output is None else folded(output, _OUTPUT_CHARS),
        metrics=folded(pretty(record.metrics), head_lines=8) if record is not None and record.metrics else None,
        # Most often it is what the model was told, which stands there already.
        error=folded(error, _OUTPUT_CHARS) if error and (output is None or error not in output) else None,
        images=image_files(content),
    )


def _arguments(arguments: Any) -> list[Argument] | None:
    if arguments is None:
        return None
    if not isinstance(arguments, dict):
        return [_argument("", arguments)]
    return [_argument(str(name), value) for name, value in arguments.items()]


def _argument(name: str, value: Any) -> Argument:
    text = value if isinstance(value, str) else pretty(value)
    return Argument(shown(name), folded(text), block="\n" in text or len(text) > _BLOCK_CHARS)
