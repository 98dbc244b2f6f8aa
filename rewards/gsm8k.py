"""GSM8K (Cobbe et al., 2021): the final number decides."""

from __future__ import annotations

from fractions import Fraction

from ..schemas.errors import ConfigError
from .answers import final_number, marked_answers, numbers_in, without_thinking


def parse_ground_truth(answer: str) -> Fraction:
    """The number of a data set's answer, with its `####` line or already bare.

    Raises:
        ConfigError: there is no number, or several behind the marker.
    """
    marked = marked_answers(answer)
    numbers = numbers_in(marked[-1] if marked else answer)
    if len(numbers) != 1:
        raise ConfigError(f"ground_truth: must hold one number (got {answer[-80:]!r})")
    return numbers[0]


def score(solution_str: str, ground_truth: str) -> float:
    """1.0 when the final number of the model's own text equals the ground truth exactly, else 0.0.

    Args:
        solution_str: the model's last turn, without tool output. Thinking is left out.

    Raises:
        ConfigError: the ground truth is not a number.
    """
    return float(final_number(without_thinking(solution_str)) == parse_ground_truth(ground_truth))
