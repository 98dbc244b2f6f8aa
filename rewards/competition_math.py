"""AIME, and DAPO's mathematics (Yu et al., 2025), whose answers are integers: the last line `Answer: …` decides.

verl scores these +1 and -1; here it is 1 and 0, as everywhere: a weight and an offset belong to the composition.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..schemas.errors import ConfigError
from . import registry
from .answers import labelled_answer, marked_answers, only_number, plain_number, without_thinking


def parse_ground_truth(ground_truth: str) -> str:
    """The answer in a data set's text.

    Raises:
        ConfigError: it is blank.
    """
    marked = marked_answers(ground_truth)
    answer = (marked[-1] if marked else ground_truth).strip()
    if not answer:
        raise ConfigError("ground_truth: must hold an answer (got blank text)")
    return answer


@registry.score(
    "math_dapo",
    "math_dapo_reasoning",
    "math",
    "aime*",
    "BytedTsinghua-SIA/*",
    "HuggingFaceH4/aime*",
    "Maxwell-Jia/AIME*",
    "opencompass/AIME*",
    inline=True,
    check=parse_ground_truth,
    fixtures=(
        registry.Fixture("The sum is 2 + 68.\n\nAnswer: 70", "70", 1.0),
        registry.Fixture(r"Therefore \boxed{204}.", "204", 1.0),
        registry.Fixture(r"Answer: $\boxed{204}$", "204", 1.0),
        registry.Fixture("Answer: 204 or 205", "204", 0.0),
        registry.Fixture("Answer:", "204", 0.0),
    ),
)
def score(solution_str: str, ground_truth: str, extra_info: Mapping[str, Any] | None = None) -> float:
    """1.0 when the last line `Answer: …`, or without one the last `\\boxed{}`, is the ground truth, else 0.0.

    Raises:
        ConfigError: the ground truth is blank.
    """
    expected = parse_ground_truth(ground_truth)
    text = without_thinking(solution_str)
    marked = marked_answers(text)
    stated = labelled_answer(text) or (marked[-1] if marked else "")
    number = plain_number(expected)
    if number is None:
        return float("".join(stated.split()) == "".join(expected.split()) != "")
    # One number and what it is dressed in, such as a unit or `n =`: two numbers are no answer.
    return float(only_number(stated) == number)
