"""The format part: one marked answer, and thinking that is opened and closed."""

from __future__ import annotations

import re

from .answers import marked_answers, without_thinking

_THINK_ANSWER = re.compile(r"\s*<think>(.*?)</think>\s*<answer>(.*?)</answer>\s*", re.DOTALL)
_TAGS = ("<think>", "</think>", "<answer>", "</answer>")


def score(solution_str: str) -> float:
    """1.0 when the text marks exactly one answer (`####` or `\\boxed{}`) outside balanced thinking, else 0.0."""
    opened, closed = solution_str.count("<think>"), solution_str.count("</think>")
    balanced = opened == closed or (opened == 0 and closed == 1)  # templates can open the thinking in the prompt
    answers = marked_answers(without_thinking(solution_str))
    return float(balanced and len(answers) == 1 and bool(answers[0]))


def think_answer(solution_str: str) -> float:
    """1.0 when the text is `<think>…</think><answer>…</answer>` (DeepSeek-R1, 2025) and nothing else, else 0.0.

    Each tag stands once and neither part is blank. A `<think>` that the prompt opened counts as opened.
    """
    text = solution_str if "<think>" in solution_str else f"<think>{solution_str}"
    if any(text.count(tag) != 1 for tag in _TAGS):  # first: on a text full of tags the expression would take for ever
        return 0.0
    match = _THINK_ANSWER.fullmatch(text)
    return float(match is not None and all(part.strip() for part in match.groups()))
