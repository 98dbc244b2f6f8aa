"""Read objects that are almost JSON, without ever evaluating or guessing.

Each reading is exact: a text that none of them accepts stays unreadable, it never becomes `{}`.
"""

from __future__ import annotations

import ast
import json
from typing import Any

_MAX_LITERAL_CHARS = 100_000  # Python's parser recurses: a longer literal is not worth the risk


def read_object(text: str) -> dict[str, Any] | None:
    """The object in `text`, or None.

    Tried in turn: JSON that may hold raw newlines in its strings, the same without trailing commas, and a Python
    literal (`{'name': 'f', 'arguments': {'exact': True}}`).
    """
    for read in (_lenient_json, _without_trailing_commas, _python_literal):
        found = read(text.strip())
        if isinstance(found, dict):
            return found
    return None


def _lenient_json(text: str) -> Any:
    try:
        return json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None


def _without_trailing_commas(text: str) -> Any:
    kept: list[str] = []
    comma: int | None = None
    in_string = escaped = False
    for char in text:
        if in_string:
            in_string = escaped or char != '"'
            escaped = char == "\\" and not escaped
        else:
            if char in "}]" and comma is not None:
                kept[comma] = ""
            if not char.isspace():
                comma = len(kept) if char == "," else None
            in_string = char == '"'
        kept.append(char)
    return _lenient_json("".join(kept))


def _python_literal(text: str) -> Any:
    if len(text) > _MAX_LITERAL_CHARS:
        return None
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return None
