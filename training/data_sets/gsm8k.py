"""GSM8K (Cobbe et al., 2021): `question` and `answer`, whose last line is `#### NUMBER`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .question import DataSet, Question, text_of


def question(row: Mapping[str, Any], where: str) -> Question:
    # The number alone, without the commas of thousands: verl's own score compares it as text.
    number = text_of(row, where, "answer").rpartition("####")[2].strip().replace(",", "")
    return Question(text_of(row, where, "question"), "openai/gsm8k", number)


GSM8K = DataSet(
    columns=frozenset({"question", "answer"}),
    instruction="Solve the problem. Think first; use the tools for every calculation. "
    "End with the final number on a line of its own: #### <number>",
    question=question,
)
