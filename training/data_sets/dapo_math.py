"""Competition mathematics with short answers: DAPO-Math-17k (Yu et al., 2025), AIME, and others of their layouts.

DAPO-Math-17k and the AIME 2024 that comes with it are in verl's layout, with each question many times over (100 and 32
times). Others have `problem` and `answer`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...schemas.errors import ConfigError
from .question import DataSet, Question, name_of, text_of, verl_truth

_SOURCE = "math_dapo"
# The score reads what follows "Answer:". DAPO's own questions ask for it already.
_ANSWER_FORMAT = "\n\nEnd with a line that says only: Answer: <the answer>"


def question(row: Mapping[str, Any], where: str) -> Question:
    text = text_of(row, where, "prompt", "problem", "question")
    if "Answer:" not in text:
        text += _ANSWER_FORMAT
    source = str(row.get("data_source") or "")
    if source != "math_dapo_reasoning" and not source.startswith("aime"):
        source = _SOURCE
    return Question(text, source, _answer(row, where), name_of(row, "id", "unique_id"))


def _answer(row: Mapping[str, Any], where: str) -> str:
    found = verl_truth(row)
    answer = row.get("answer") if found is None else found
    if isinstance(answer, bool) or not isinstance(answer, str | int) or not str(answer).strip():
        raise ConfigError(f"{where}: has no 'reward_model.ground_truth' and no 'answer' (a text or a whole number)")
    return str(answer).strip()


DAPO_MATH = DataSet(
    columns=frozenset({"prompt", "problem", "question", "answer", "reward_model", "data_source", "id", "unique_id"}),
    instruction="Reason step by step, and run Python with the tool to calculate and to check what you found.",
    question=question,
)
