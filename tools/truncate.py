"""Cut a tool's text to a number of characters, saying how much was left out."""

from __future__ import annotations

import unicodedata
from typing import Literal

Keep = Literal["head", "tail", "both"]
_JOINERS = {"\u200d", "\ufe0e", "\ufe0f"}


def truncate(text: str, max_chars: int, keep: Keep = "both") -> str:
    """Shorten `text` to at most `max_chars` of its own characters plus a marker.

    A base character and the combining characters after it stay together, so a cut can keep a few less.

    Args:
        keep: which end survives; `both` keeps half of each.
    """
    if len(text) <= max_chars:
        return text
    head_chars = {"head": max_chars, "tail": 0, "both": (max_chars + 1) // 2}[keep]
    head_end = _back_to_boundary(text, head_chars)
    tail_start = _on_to_boundary(text, len(text) - (max_chars - head_chars))
    marker = f"[... {tail_start - head_end} of {len(text)} characters left out ...]"
    pieces = [text[:head_end], marker, text[tail_start:]]
    return "\n".join(piece for piece in pieces if piece)


def _joins_previous(char: str) -> bool:
    return bool(unicodedata.combining(char)) or char in _JOINERS


def _splits(text: str, position: int) -> bool:
    if not 0 < position < len(text):
        return False
    return _joins_previous(text[position]) or text[position - 1] == "\u200d"


def _back_to_boundary(text: str, position: int) -> int:
    while _splits(text, position):
        position -= 1
    return position


def _on_to_boundary(text: str, position: int) -> int:
    while _splits(text, position):
        position += 1
    return position
