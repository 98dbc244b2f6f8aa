"""Find the final number in a model's own words, and compare numbers exactly."""

from __future__ import annotations

import re
from fractions import Fraction

# A minus is a sign only where no operand stands before it: "10-12" holds 10 and 12, "- 5 apples" holds 5.
_NUMBER = re.compile(
    r"(?:(?<![\d.)\]%])[-+−])?\$?(?:(?<=\$)[-−])?"
    r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)?(?:\.\d+)?(?<=\d)"
    r"(?:[eE][-+]?\d{1,3}(?!\w))?(?:\s?/\s?\d+(?![\d./]))?"
)
_HASHES = re.compile(r"####[ \t]*([^\n]*)")
_BOXED = re.compile(r"\\boxed\s*\{")
_CLOSED_THINK = re.compile(r"<think>.*?</think>", re.DOTALL)
_MAX_NUMBER_CHARS = 200


def without_thinking(text: str) -> str:
    """Leave out every closed `<think>` block, and what stands before a lone `</think>`."""
    text = _CLOSED_THINK.sub("", text)
    return text.rpartition("</think>")[2]


def marked_answers(text: str) -> list[str]:
    """What stands behind each `####` or inside each `\\boxed{}`, in the order of the text."""
    found = [(match.start(), match.group(1).strip()) for match in _HASHES.finditer(text)]
    found += [(match.start(), _braced(text, match.end())) for match in _BOXED.finditer(text)]
    return [answer for _, answer in sorted(found)]


def final_number(text: str) -> Fraction | None:
    """The number of the last `####` or `\\boxed{}`; without any marker, the last number of the text.

    A marker whose content holds no number is an answer that cannot be read: None, never an older number.
    """
    marked = marked_answers(text)
    numbers = numbers_in(marked[-1] if marked else text)
    return numbers[-1] if numbers else None


def numbers_in(text: str) -> list[Fraction]:
    """Each number in the text: signs, thousands separators, decimals, fractions, exponents and `$` understood."""
    found = (_to_fraction(match.group()) for match in _NUMBER.finditer(text) if match.group())
    return [number for number in found if number is not None]


def _to_fraction(text: str) -> Fraction | None:
    plain = text.replace(",", "").replace("$", "").replace("−", "-")
    plain = "".join(plain.split())
    if len(plain) > _MAX_NUMBER_CHARS:
        return None
    numerator, _, denominator = plain.partition("/")
    try:
        return Fraction(numerator) / Fraction(denominator or "1")
    except (ValueError, ZeroDivisionError):
        return None


def _braced(text: str, start: int) -> str:
    """The text up to the brace that closes the one before `start`; all the rest when none does."""
    depth = 1
    for position in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            return text[start:position].strip()
    return text[start:].strip()
