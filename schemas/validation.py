"""One readable line per problem, out of pydantic's errors."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from .errors import ConfigError
from .redacted import is_secret, redacted, redacted_values

M = TypeVar("M", bound=BaseModel)
_SHOWN_CHARS = 80


def describe(error: ValidationError, model: type[BaseModel] | None = None, *, hides: bool = True) -> str:
    """Name each wrong field, what is wrong with it, and the value that was given, where that is no secret.

    Args:
        model: what the data were to fit; for an unknown key the nearest of its fields is named.
        hides: secrets. A model that is to mend its own call must see what it wrote.
    """
    lines = []
    for item in error.errors(include_url=False):
        field = ".".join(str(part) for part in item["loc"]) or "(whole input)"
        shown = _shown(item["loc"], item.get("input")) if hides else repr(item.get("input"))
        if len(shown) > _SHOWN_CHARS:
            shown = shown[:_SHOWN_CHARS] + "…"
        message = item["msg"].removeprefix("Value error, ")
        line = f"{field}: {message}" if item["type"] == "missing" else f"{field}: {message} (got {shown})"
        if item["type"] == "extra_forbidden" and model is not None:
            line += nearest(str(item["loc"][-1]), _fields_at(model, item["loc"][:-1]))
        lines.append(line)
    return "; ".join(lines)


def _shown(location: Iterable[object], value: Any) -> str:
    return "a secret" if any(map(is_secret, location)) else redacted(repr(redacted_values(value)))


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
        raise ConfigError(f"{where}: {describe(error, model)}") from error


def nearest(name: str, valid: Sequence[str]) -> str:
    """Advice for a name that is none of the valid ones; empty where nothing is near."""
    found = difflib.get_close_matches(name, valid, n=1)
    return f"; did you mean {found[0]!r}?" if found else ""


def _fields_at(model: type[BaseModel], path: tuple[int | str, ...]) -> list[str]:
    """The fields of the model that a path of keys leads to."""
    for part in path:
        field = model.model_fields.get(part) if isinstance(part, str) else None
        inner = _model_in(field.annotation) if field is not None else model if isinstance(part, int) else None
        if inner is None:
            return []
        model = inner
    return list(model.model_fields)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for inner in get_args(annotation) if (found := _model_in(inner)) is not None), None)
