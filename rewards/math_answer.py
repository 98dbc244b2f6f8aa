"""MATH (Hendrycks et al., 2021) and its kin: the last marked answer, compared as mathematics by math-verify."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from ..schemas.errors import ConfigError
from . import registry
from .answers import labelled_answer, marked_answers, plain_number, without_thinking
from .math_process import shared_pool
from .score import Score

# The longest answer in MATH-500 has 159 characters.
_MAX_ANSWER_CHARS = 1000


def expected_answer(ground_truth: str) -> str:
    """The answer in a data set's text: what its last `\\boxed{}` holds, or all of it.

    Raises:
        ConfigError: it is blank, or longer than an answer may be.
    """
    marked = marked_answers(ground_truth)
    answer = (marked[-1] if marked else ground_truth).strip().strip("$").strip()
    if not answer or len(answer) > _MAX_ANSWER_CHARS:
        raise ConfigError(f"ground_truth: must hold an answer of 1 to {_MAX_ANSWER_CHARS} characters")
    return answer


def stated_answer(solution_str: str) -> str | None:
    """What the model says is its answer: the last `\\boxed{}` or `####`, or else the last line `Answer: …`."""
    text = without_thinking(solution_str)
    marked = marked_answers(text)
    return (marked[-1] if marked else labelled_answer(text)) or None


def _number(answer: str) -> Fraction | None:
    """Of an answer that is one. A percent sign counts for nothing, as in MATH's own comparison."""
    return plain_number(answer.removesuffix(".").removesuffix("%").removesuffix("\\"))


@registry.score(
    "lighteval/MATH",
    "DigitalLearningGmbH/MATH-lighteval",
    "HuggingFaceH4/MATH-500",
    "hendrycks/competition_math",
    "numina_*",
    check=expected_answer,
    fixtures=(
        registry.Fixture(r"so the point is \boxed{(3,\pi/2)}", r"\left( 3, \frac{\pi}{2} \right)", 1.0),
        registry.Fixture(r"\boxed{\dfrac{14}{3}}", r"\frac{14}{3}", 1.0),
        registry.Fixture(r"\boxed{4.6}", r"\frac{14}{3}", 0.0),
        registry.Fixture(r"\boxed{", r"\frac{14}{3}", 0.0),
    ),
)
async def score(solution_str: str, ground_truth: str, extra_info: Mapping[str, Any] | None = None) -> Score:
    """1.0 when the stated answer equals the ground truth, else 0.0.

    An answer that takes too much to compare counts as wrong; `too_costly` is logged as 1.

    Raises:
        ConfigError: the ground truth is no answer, or math-verify is not installed.
        InfraError: the comparing process failed.
    """
    expected, stated = expected_answer(ground_truth), stated_answer(solution_str)
    if stated is None or len(stated) > _MAX_ANSWER_CHARS:
        return Score(0.0)
    if "".join(stated.split()) == "".join(expected.split()):
        return Score(1.0)
    numbers = _number(stated), _number(expected)
    if None not in numbers:
        return Score(float(numbers[0] == numbers[1]))
    equal = await shared_pool().equal(expected, stated)
    return Score(float(bool(equal)), logged={"too_costly": float(equal is None)})
