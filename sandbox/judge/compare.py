"""Comparisons of what a program said with what was expected. All take time in proportion to their texts."""

from __future__ import annotations

import math
import re
from typing import Any

from ...schemas.judge import ExactComparison, FloatComparison, TokensComparison

TextComparison = ExactComparison | TokensComparison | FloatComparison

# Possessive, so that a long word that is no number is not tried again from each of its digits.
_NUMBER = re.compile(
    r"[+-]?(?:(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?|inf|infinity|nan)", re.IGNORECASE
)


def same_text(output: str, expected: str, comparison: TextComparison) -> bool:
    """Whether the output of a program is what was expected of it."""
    if isinstance(comparison, ExactComparison):
        return output.rstrip("\r\n") == expected.rstrip("\r\n")
    words, wanted = output.split(), expected.split()
    if words == wanted:
        return True
    if isinstance(comparison, TokensComparison) or len(words) != len(wanted):
        return False
    return all(_same_word(word, want, comparison) for word, want in zip(words, wanted, strict=True))


def _same_word(word: str, want: str, tolerance: FloatComparison) -> bool:
    if word == want:
        return True
    if not _NUMBER.fullmatch(word) or not _NUMBER.fullmatch(want):
        return False
    return is_close(float(word), float(want), tolerance)


def is_close(value: float, expected: float, tolerance: FloatComparison) -> bool:
    """Infinities are close to themselves, and NaN counts as equal to NaN."""
    if value == expected or (math.isnan(value) and math.isnan(expected)):
        return True
    if not math.isfinite(value) or not math.isfinite(expected):
        return False
    return abs(value - expected) <= max(tolerance.abs, tolerance.rel * abs(expected))


def same_value(value: Any, expected: Any, comparison: TextComparison) -> bool:
    """Whether two JSON values are the same: numbers by their value, so that 1, 1.0 and True are equal, NaN to itself.

    With a float comparison, numbers may differ by its tolerance.
    """
    pairs = [(value, expected)]
    while pairs:  # no recursion: values may be nested as deep as they like
        one, other = pairs.pop()
        if isinstance(one, list) and isinstance(other, list):
            if len(one) != len(other):
                return False
            pairs.extend(zip(one, other, strict=True))
        elif isinstance(one, dict) and isinstance(other, dict):
            if one.keys() != other.keys():
                return False
            pairs.extend((one[key], other[key]) for key in one)
        elif not _same_leaf(one, other, comparison):
            return False
    return True


def _same_leaf(one: Any, other: Any, comparison: TextComparison) -> bool:
    if not isinstance(one, int | float) or not isinstance(other, int | float):
        return type(one) is type(other) and bool(one == other)
    if one == other:
        return True
    tolerance = comparison if isinstance(comparison, FloatComparison) else FloatComparison(rel=0.0, abs=0.0)
    try:
        return is_close(float(one), float(other), tolerance)
    except OverflowError:  # an integer that no float can hold
        return False
