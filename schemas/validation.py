"""One readable line per problem, out of pydantic's errors."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from .errors import ConfigError

M = TypeVar("M", bound=BaseModel)
_SHOWN_CHARS = 80


def describe(error: ValidationError) -> str:
    """Name each wrong field, what is wrong with it, and the value that was given."""
    lines = []
    for item in error.errors(include_url=False):
        field = ".".join(str(part) for part in item["loc"]) or "(whole input)"
        shown = repr(item.get("input"))
        if len(shown) > _SHOWN_CHARS:
            shown = shown[:_SHOWN_CHARS] + "…"
        message = item["msg"].removeprefix("Value error, ")
        lines.append(f"{field}: {message}" if item["type"] == "missing" else f"{field}: {message} (got {shown})")
    return "; ".join(lines)


def number(value: Any) -> Any:
    """For fields that hold numbers, as a validator in mode `before`: pydantic would read JSON's `true` as 1.

    Raises:
        ValueError: the value is a boolean.
    """
    if isinstance(value, bool):
        raise ValueError("must be a number, not a boolean")
    return value


def validated(model: type[M], data: Any, where: str) -> M:
    """Build `model` from plain data.

    Raises:
        ConfigError: the data do not fit; the message starts with `where` and names field and value.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise ConfigError(f"{where}: {describe(error)}") from error
