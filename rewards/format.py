"""The format part: one marked answer, and thinking that is opened and closed."""

from __future__ import annotations

from .answers import marked_answers, without_thinking


def score(solution_str: str) -> float:
    """1.0 when the text marks exactly one answer (`####` or `\\boxed{}`) outside balanced thinking, else 0.0."""
    opened, closed = solution_str.count("<think>"), solution_str.count("</think>")
    balanced = opened == closed or (opened == 0 and closed == 1)  # templates can open the thinking in the prompt
    answers = marked_answers(without_thinking(solution_str))
    return float(balanced and len(answers) == 1 and bool(answers[0]))
