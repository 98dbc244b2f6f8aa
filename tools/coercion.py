"""Safe readings of arguments that have the wrong JSON type but only one sensible meaning."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

_INTEGER = re.compile(r"[+-]?\d{1,18}")
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?")
_BOOLEANS = {"true": True, "false": False}


def coerce(arguments: Mapping[str, Any], properties: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Read each argument as the type that its schema asks for, where that loses nothing.

    Args:
        properties: parameter name -> JSON schema.

    Returns:
        The arguments, and one sentence for each that was changed (`step: '5' was read as the integer 5`).
    """
    read = dict(arguments)
    changes: list[str] = []
    for name, value in arguments.items():
        schema = properties.get(name, {})
        types = _types(schema)
        if not types or _fits(value, types):
            continue
        found = _read(value, types, schema)
        if found is not None:
            read[name], kind = found
            changes.append(f"{name}: {_short(value)} was read as {kind} {_short(read[name])}")
    return read, changes


def _types(schema: Mapping[str, Any]) -> set[str]:
    declared = schema.get("type")
    return {declared} if isinstance(declared, str) else set(declared or ())


def _fits(value: Any, types: set[str]) -> bool:
    match value:
        case bool():
            return "boolean" in types
        case int():
            return bool(types & {"integer", "number"})
        case float():
            return "number" in types or ("integer" in types and value.is_integer())
        case str():
            return "string" in types
        case list():
            return "array" in types
        case dict():
            return "object" in types
    return "null" in types


def _read(value: Any, types: set[str], schema: Mapping[str, Any]) -> tuple[Any, str] | None:
    if isinstance(value, str):
        found = _read_text(value.strip(), types)
        if found is not None:
            return found
    # A string that begins like a list was meant as one, and is broken: to wrap it would hide that.
    if "array" in types and not isinstance(value, dict | list) and not str(value).lstrip().startswith("["):
        item_types = _types(schema.get("items", {}))
        if not item_types or _fits(value, item_types):
            return [value], "the list"
    if "string" in types and isinstance(value, int | float) and not isinstance(value, bool):
        return json.dumps(value), "the text"
    return None


def _read_text(text: str, types: set[str]) -> tuple[Any, str] | None:
    if "integer" in types and _INTEGER.fullmatch(text):
        return int(text), "the integer"
    if "number" in types and _NUMBER.fullmatch(text):
        return float(text), "the number"
    if "boolean" in types and text.lower() in _BOOLEANS:
        return _BOOLEANS[text.lower()], "the boolean"
    for name, kind, opening in (("array", list, "["), ("object", dict, "{")):
        if name in types and text.startswith(opening):
            try:
                parsed = json.loads(text)
            except (ValueError, RecursionError):
                continue
            if isinstance(parsed, kind):
                return parsed, f"the {name}"
    return None


def _short(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else shown[:60] + "…"
