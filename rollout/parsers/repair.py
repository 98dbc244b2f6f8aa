"""Read objects that are almost JSON, without ever evaluating or guessing.

A text that cannot be read without inventing or dropping something stays unreadable; it never becomes `{}`.
"""

from __future__ import annotations

import ast
import json
import re
from typing import Any

import json_repair

from ...schemas.surrogates import may_hold_surrogates, without_lone_surrogates

_MAX_LITERAL_CHARS = 100_000  # Python's parser recurses: a longer literal is not worth the risk
_MAX_REPAIR_CHARS = 20_000  # json_repair takes microseconds a character
_MAX_REPAIR_BRACKETS = 500  # and its time grows with the square of the nesting
_BARE_WORD = re.compile(r"[:,\[]\s*(?!(?:true|false|null|True|False|None)\b)[A-Za-z_]\w*\s*[,}\]]")
_NO_VALUE = re.compile(r"[:,\[]\s*(?:,|:)|:\s*(?:[}\]]|\Z)")
_TRAILING_COMMAS = re.compile(r",+(?=[}\]]|$)")
_NO_STRUCTURE = re.compile(r"[\s\"'\\]+")
_QUOTES = re.compile(r'\\.|(")', re.DOTALL)


def read_object(text: str, *, whole: bool = True) -> dict[str, Any] | None:
    """The object in `text`, or None.

    Tried in turn: JSON that may hold raw newlines in its strings, the same without trailing commas, a Python literal
    (`{'name': 'f', 'arguments': {'exact': True}}`), and what the library json_repair makes of it if that keeps all of
    the text: quotes may be added and exchanged and brackets closed, nothing else.

    Args:
        whole: the text ends where its writer ended it. Where it may have been cut off, no brackets are closed.
    """
    stripped = text.strip()
    if not stripped.startswith("{"):
        return None
    for read in (_lenient_json, _without_trailing_commas, _python_literal):
        found = read(stripped)
        if isinstance(found, dict):
            break
    else:
        found = _repaired(stripped, whole)
    if not isinstance(found, dict):
        return None
    if may_hold_surrogates(stripped):
        mended: dict[str, Any] = without_lone_surrogates(found)
        return mended
    return found


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
        found = ast.literal_eval(text)
        json.dumps(found)  # a literal can also hold bytes, sets and complex numbers, which JSON cannot
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return None
    return found


def _repaired(text: str, whole: bool) -> Any:
    """What json_repair reads, where it only had to mend quotes and closing brackets."""
    if len(text) > _MAX_REPAIR_CHARS or text.count("{") + text.count("[") > _MAX_REPAIR_BRACKETS:
        return None
    if sum(bool(match.group(1)) for match in _QUOTES.finditer(text)) % 2:
        return None  # it is a guess where the odd string ends
    if _BARE_WORD.search(text) or _NO_VALUE.search(text):
        return None  # a name such as `undefined` is no text, and a missing value not an empty one
    try:
        found = json_repair.loads(text, skip_json_loads=True)
        rendered = json.dumps(found, ensure_ascii=False)
    except (ValueError, RecursionError, TypeError):
        return None
    given, made = _structure(text), _structure(rendered)
    closed_brackets = made.startswith(given) and not made[len(given) :].strip("}]")
    return found if found and (made == given or (whole and closed_brackets)) else None


def _structure(text: str) -> str:
    """The text without what a repair may change: white space, quotes, backslashes, trailing commas."""
    return _TRAILING_COMMAS.sub("", _NO_STRUCTURE.sub("", text))
