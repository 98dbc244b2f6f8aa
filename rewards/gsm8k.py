"""GSM8K (Cobbe et al., 2021): the final number decides."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from ..schemas.errors import ConfigError
from . import registry
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


@registry.score(
    "openai/gsm8k",
    "rollbox/arithmetic",
    inline=True,
    check=parse_ground_truth,
    fixtures=(
        registry.Fixture("<<48+24=72>>72 clips altogether in April and May.\n#### 72", "#### 72", 1.0),
        registry.Fixture("She sold 48 + 24 = 72 clips.\n#### 71", "#### 72", 0.0),
        registry.Fixture("The profit is \\boxed{$70,000}.", "#### 70000", 1.0),
        registry.Fixture("#### none", "#### 72", 0.0),
    ),
)
def score(solution_str: str, ground_truth: str, extra_info: Mapping[str, Any] | None = None) -> float:
    """1.0 when the final number of the model's own text equals the ground truth exactly, else 0.0.

    Args:
        solution_str: the model's last turn, without tool output. Thinking is left out.

    Raises:
        ConfigError: the ground truth is not a number.
    """
    return float(final_number(without_thinking(solution_str)) == parse_ground_truth(ground_truth))
