"""Half a surrogate pair: JSON can write one (`\\ud83d`), but it is no character, and nothing can be encoded with it."""

from __future__ import annotations

import json
import re
from typing import Any

# A high one that no low one follows, or a low one that follows none: not after what only looks like one (`\\ud83d`).
_HALF = re.compile(r"\\ud(?:[89ab][0-9a-f]{2}(?!\\ud[c-f])|(?<!(?<!\\)\\ud[89ab][0-9a-f]{2}\\ud)[c-f])")


def may_hold_surrogates(text: str, start: int = 0, end: int | None = None) -> bool:
    """Whether JSON in `text[start:end]` escapes surrogates at all, paired or not."""
    return text.find("\\ud", start, end) >= 0 or text.find("\\uD", start, end) >= 0


def without_lone_surrogates(value: Any) -> Any:
    """`value`, a JSON value, with each half of a pair replaced by U+FFFD; keys too. Two that make a pair are its
    character, as they are for who reads them as JSON."""
    match value:
        case str():
            return _whole(value)
        case list() | tuple():
            return [without_lone_surrogates(item) for item in value]
        case dict():
            return {without_lone_surrogates(key): without_lone_surrogates(item) for key, item in value.items()}
    return value


def wire_json(value: Any) -> str:
    """`value` as JSON that every server can read: many refuse a whole request for half a surrogate pair in it."""
    text = json.dumps(value)
    # Emoji are pairs, and much of Hangul begins with `\ud` too: neither is to cost a second writing.
    return text if _HALF.search(text) is None else json.dumps(without_lone_surrogates(value))


def _whole(text: str) -> str:
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
