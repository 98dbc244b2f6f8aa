"""Multiple choice: one letter decides."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ..schemas.errors import ConfigError
from . import registry
from .answers import labelled_answer, marked_answers, tagged, without_thinking

_LETTERS = "ABCDEFGHIJ"
_CHOICE = re.compile(
    r"\(?(?:\\?(?:text|textbf|textrm|mathbf|mathrm)\{)?\s*\(?([A-J])\s*\)?\s*\}?\)?(?:[.:)]\s.*|[.:)])?", re.DOTALL
)
# White space in one piece: two neighbours that both may take it cost time by the square of its length.
_SAID = re.compile(
    r"(?i:\b(?:answer|choice|option)\s+is\b[\s:]*)\**\(?([A-J])\b(?!['’])(?!\)?\s*(?:/|or\b)\s*\(?[A-J]\b)"
)


def parse_ground_truth(ground_truth: str) -> str:
    """The letter of the right choice: A to J, also in brackets, or its index from 0.

    Raises:
        ConfigError: it is neither.
    """
    text = ground_truth.strip().strip("()").upper()
    if len(text) == 1 and text.isdecimal() and text.isascii():
        return _LETTERS[int(text)]
    if len(text) != 1 or text not in _LETTERS:
        raise ConfigError(f"ground_truth: must be a letter from A to J, or an index from 0 (got {ground_truth[:80]!r})")
    return text


def chosen(solution_str: str) -> str | None:
    """The letter that the model chose: tagged, marked, labelled or said, or what the text begins with.

    A letter anywhere else is none, and "A or B" is no choice.
    """
    text = without_thinking(solution_str)
    stated = [*tagged(text, "answer")[-1:], *marked_answers(text)[-1:], labelled_answer(text)]
    chosen = next((letter for candidate in stated if (letter := _letter(candidate)) is not None), None)
    if chosen is not None:
        return chosen
    said = _SAID.findall(text)
    return said[-1] if said else _letter(text)


def _letter(text: str) -> str | None:
    match = _CHOICE.fullmatch(text.strip().strip("*"))
    return match.group(1) if match else None


@registry.score(
    "Idavidrein/gpqa",
    "cais/mmlu",
    "TIGER-Lab/MMLU-Pro",
    "rollbox/multiple_choice",
    inline=True,
    check=parse_ground_truth,
    fixtures=(
        registry.Fixture("The entropy grows, so the answer is (C).", "C", 1.0),
        registry.Fixture("Answer: C", "2", 1.0),
        registry.Fixture(r"\boxed{\text{B}}", "C", 0.0),
        registry.Fixture("A, B, C or D", "C", 0.0),
    ),
)
def score(solution_str: str, ground_truth: str, extra_info: Mapping[str, Any] | None = None) -> float:
    """1.0 when the chosen letter is the right one, else 0.0.

    Raises:
        ConfigError: the ground truth is no choice.
    """
    return float(chosen(solution_str) == parse_ground_truth(ground_truth))
