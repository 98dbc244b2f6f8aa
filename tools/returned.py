"""What a tool returned, checked before anything else reads it: tools are the user's code."""

from __future__ import annotations

import math
from typing import Any

from pydantic import ValidationError
from pydantic_core import to_json, to_jsonable_python

from ..schemas.call_record import CallRecord
from ..schemas.errors import ErrorKind, InfraError
from ..schemas.tool import ToolResponse


def checked(name: str, returned: Any) -> tuple[ToolResponse, float, dict[str, Any]]:
    """The three parts of what `execute` returned.

    A response of verl's own class is taken too; a reward or metrics of None count as none.

    Raises:
        InfraError: they are something else.
    """
    if not (isinstance(returned, tuple) and len(returned) == 3):
        raise InfraError(f"tool {name!r} returned {type(returned).__name__}, not (ToolResponse, reward, metrics)")
    response, reward, metrics = returned
    if metrics is not None and not isinstance(metrics, dict):
        raise InfraError(f"tool {name!r} returned {type(metrics).__name__} as its metrics, not a dict")
    step_reward = finite(0.0 if reward is None else reward, f"step reward of tool {name!r}")
    return _response(name, response), step_reward, metrics or {}


def finite(value: Any, what: str) -> float:
    """`value` as a finite number.

    Raises:
        InfraError: it is none.
    """
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise InfraError(f"{what} is not a number: {repr(value)[:100]}") from error
    if not math.isfinite(number):
        raise InfraError(f"{what} is {number}")
    return number


def read_metrics(record: CallRecord, metrics: dict[str, Any]) -> None:
    """Move the metrics that a CallRecord has fields for; keep the rest, as what JSON can hold.

    Raises:
        InfraError: one of them has a value of the wrong kind.
    """
    if not metrics:
        return
    rest = dict(metrics)
    what = f"a metric of tool {record.tool!r}"
    record.queue_ms += finite(rest.pop("queue_ms", 0.0), f"{what}, queue_ms,")
    record.run_ms = finite(rest.pop("run_ms", 0.0), f"{what}, run_ms,")
    record.retries = int(finite(rest.pop("retries", 0), f"{what}, retries,"))
    record.images_left_out += int(finite(rest.pop("images_left_out", 0), f"{what}, images_left_out,"))
    record.cached = bool(rest.pop("cached", False))
    record.truncated = bool(rest.pop("truncated", False))
    kind = rest.pop("error_kind", None)
    if kind is not None and kind not in set(ErrorKind):
        raise InfraError(f"{what}, error_kind, is {kind!r}, which is none of {', '.join(ErrorKind)}")
    record.error_kind = ErrorKind(kind) if kind is not None else None
    error = rest.pop("error", None)
    record.error = None if error is None else str(error)
    # Whatever else it is: the record is written as JSON in the end, and must not fail there.
    record.metrics = {plain_text(str(key)): _jsonable(value) for key, value in rest.items()} if rest else {}


def plain_text(text: str) -> str:
    """`text` without lone surrogates, which no tokenizer takes; they become `\\udXXX`."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="backslashreplace").decode()
    return text


def _jsonable(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    try:
        made = to_jsonable_python(value, fallback=repr, bytes_mode="base64")
        to_json(made)
    except (ValueError, RecursionError):  # such as half a surrogate pair, or a list that holds itself
        return plain_text(repr(value))
    return made


def _response(name: str, response: Any) -> ToolResponse:
    if not isinstance(response, ToolResponse):
        if not all(hasattr(response, part) for part in ("text", "image", "video")):
            raise InfraError(f"tool {name!r} returned {type(response).__name__} as its response, not ToolResponse")
        try:
            return ToolResponse(text=response.text, image=response.image, video=response.video)
        except ValidationError as error:
            raise InfraError(f"tool {name!r} returned a response that is none: {error.errors()[0]['msg']}") from error
    if not (response.text is None or isinstance(response.text, str)):  # built past its checks
        raise InfraError(f"tool {name!r} returned {type(response.text).__name__} as its text")
    return response
