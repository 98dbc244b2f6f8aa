"""Cut a tool's text to a number of characters or tokens, saying how much was left out."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from typing import Literal

Keep = Literal["head", "tail", "both"]
Encoder = Callable[[str], Sequence[int]]
_JOINERS = {"\u200d", "\ufe0e", "\ufe0f"}


def truncate(text: str, max_chars: int, keep: Keep = "both") -> str:
    """Shorten `text` to at most `max_chars` of its own characters plus a marker.

    A base character and the combining characters after it stay together, so a cut can keep a few less.

    Args:
        keep: which end survives; `both` keeps half of each.
    """
    if len(text) <= max_chars:
        return text
    head, tail = _shares(max_chars, keep)
    return _cut(text, head, tail, f"{len(text)} characters", lambda kept: len(text) - kept)


def truncate_tokens(text: str, max_tokens: int, encode: Encoder, keep: Keep = "both") -> str:
    """Shorten `text` to at most `max_tokens` of its own tokens plus a marker; no character is split.

    Args:
        encode: text -> token ids, without special tokens. It is called about twenty times when the text is too long.
    """
    total = len(encode(text))
    if total <= max_tokens:
        return text
    head_tokens, tail_tokens = _shares(max_tokens, keep)
    head = _longest(len(text), lambda chars: len(encode(text[:chars])) <= head_tokens) if head_tokens else 0
    tail = _longest(len(text) - head, lambda chars: len(encode(text[-chars:])) <= tail_tokens) if tail_tokens else 0
    return _cut(text, head, tail, f"{total} tokens", lambda _: total - max_tokens)


def _shares(limit: int, keep: Keep) -> tuple[int, int]:
    head = {"head": limit, "tail": 0, "both": (limit + 1) // 2}[keep]
    return head, limit - head


def _longest(most: int, fits: Callable[[int], bool]) -> int:
    """The largest number up to `most` that fits, found by halving; more text hardly ever has fewer tokens."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low


def _cut(text: str, head: int, tail: int, total: str, left_out: Callable[[int], int]) -> str:
    head_end = _back_to_boundary(text, head)
    tail_start = _on_to_boundary(text, len(text) - tail)
    marker = f"[... {left_out(head_end + len(text) - tail_start)} of {total} left out ...]"
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
