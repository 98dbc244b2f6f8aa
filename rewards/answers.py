"""Find the final number in a model's own words, and compare numbers exactly."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from itertools import islice

# A minus is a sign only where no operand stands before it: "10-12" holds 10 and 12, "- 5 apples" holds 5.
_NUMBER = re.compile(
    r"(?:(?<![\d.)\]%])[-+−])?\$?(?:(?<=\$)[-−])?"
    r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)?(?:\.\d+)?(?<=\d)"
    r"(?:[eE][-+]?\d{1,3}(?!\w))?(?:\s?/\s?\d+(?![\d./]))?"
)
_HASHES = re.compile(r"####[ \t]*([^\n]*)")
_BOXED = re.compile(r"\\boxed\s*\{")
_LABEL = re.compile(r"(?i)\banswer\s*:[ \t]*([^\n]*)")
_BRACE = re.compile(r"[{}]")
# LaTeX's ways to set thousands apart: 70{,}000 and 70,\!000 and 70\,000.
_SET_APART = re.compile(r"(?<=\d)(?:\{,\}|,?\\[,!;: ])(?=\d{3})")
_UNIT_POWER = re.compile(r"(?<=[^\W\d])(\}?)\^\{?-?\d+\}?")
_MAX_NUMBER_CHARS, _MAX_MARKED_CHARS = 200, 4000


def without_thinking(text: str) -> str:
    """Leave out every closed `<think>` block, and what stands before a lone `</think>`."""
    kept, position = [], 0
    for start, end in _tagged_spans(text, "think"):
        kept.append(text[position:start])
        position = end
    return ("".join(kept) + text[position:]).rpartition("</think>")[2]


def tagged(text: str, tag: str) -> list[str]:
    """What each closed `<tag>` holds, in the order of the text. An opening tag inside one is part of what it holds."""
    return [text[start + len(tag) + 2 : end - len(tag) - 3] for start, end in _tagged_spans(text, tag)]


def _tagged_spans(text: str, tag: str) -> Iterator[tuple[int, int]]:
    # Not a regular expression: a text full of opening tags would take it time by the square of its length.
    opening, closing = f"<{tag}>", f"</{tag}>"
    end = 0
    while (start := text.find(opening, end)) >= 0 and (close := text.find(closing, start + len(opening))) >= 0:
        end = close + len(closing)
        yield start, end


def marked_answers(text: str) -> list[str]:
    """What stands behind each `####` or inside each `\\boxed{}`, in the order of the text; 4,000 characters at most.

    A box that is never closed holds all that follows.
    """
    found = [(match.start(), match.group(1).strip()[:_MAX_MARKED_CHARS]) for match in _HASHES.finditer(text)]
    boxes = list(_BOXED.finditer(text))
    closing = _closing_braces(text, {match.end() for match in boxes}) if boxes else {}
    for match in boxes:
        start = match.end()
        end = min(closing.get(start, len(text)), start + _MAX_MARKED_CHARS)
        found.append((match.start(), text[start:end].strip()))
    return [answer for _, answer in sorted(found)]


def answer_count(text: str) -> int:
    """How many answers a text gives outside its thinking, by whichever mark it uses most: `<answer>`, `####` or
    `\\boxed{}`, or `Answer: …`.
    """
    said = without_thinking(text)
    return max(len(tagged(said, "answer")), len(marked_answers(said)), len(_LABEL.findall(said)))


def final_number(text: str) -> Fraction | None:
    """The number of the last `####` or `\\boxed{}`; without any marker, the last number of the text.

    A marker whose content holds no number is an answer that cannot be read: None, never an older number. The power of
    a unit, as in `9 cm^2`, is no number.
    """
    marked = marked_answers(text)
    text = _plain(marked[-1] if marked else text)
    # From the end: a text can hold very many numbers, and one of them counts.
    found = [match.group() for match in _NUMBER.finditer(text) if match.group()]
    return next((number for item in reversed(found) if (number := _to_fraction(item)) is not None), None)


def numbers_in(text: str) -> list[Fraction]:
    """Each number in the text: signs, thousands separators, decimals, fractions, exponents and `$` understood."""
    return list(_numbers(text))


def only_number(text: str) -> Fraction | None:
    """The number of a text that holds one, whatever it is dressed in; None for a text with none or with several."""
    found = list(islice(_numbers(text), 2))
    return found[0] if len(found) == 1 else None


def plain_number(text: str) -> Fraction | None:
    """The number that the text is, with nothing else around it; None for any other text."""
    text = text.strip().strip("$").strip()
    match = _NUMBER.fullmatch(text)
    return _to_fraction(text) if match and text else None


def labelled_answer(text: str) -> str:
    """What the last `Answer: …` says, without Markdown, dollar signs and `\\boxed{}`; empty when there is none."""
    found = _LABEL.findall(text)
    if not found:
        return ""
    answer = str(found[-1])
    marked = marked_answers(answer)
    return marked[-1] if marked else answer.strip().strip("*$").rstrip(".").strip()


def _plain(text: str) -> str:
    if "{,}" in text or "\\" in text:
        text = _SET_APART.sub(",", text)
    return _UNIT_POWER.sub(r"\1", text) if "^" in text else text


def _numbers(text: str) -> Iterator[Fraction]:
    found = (_to_fraction(match.group()) for match in _NUMBER.finditer(text) if match.group())
    return (number for number in found if number is not None)


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


def _closing_braces(text: str, starts: set[int]) -> dict[int, int]:
    """Start of a box's content -> position of the brace that closes it. One pass, however the boxes nest."""
    open_at: list[int] = []
    found: dict[int, int] = {}
    first = min(starts) - 1
    for match in _BRACE.finditer(text, first):
        if match.group() == "{":
            open_at.append(match.end())
        elif open_at:
            start = open_at.pop()
            if start in starts:
                found[start] = match.start()
    return found
