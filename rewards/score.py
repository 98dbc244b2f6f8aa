"""Score: what a score function returns when a number does not say it all."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..schemas.errors import InfraError


@dataclass(frozen=True, slots=True)
class Score:
    """One score.

    Attributes:
        value: the reward before weighting.
        correct: whether the answer is right; None takes `value == 1.0`.
        logged: further numbers to log by name; they earn nothing.
    """

    value: float
    correct: bool | None = None
    logged: Mapping[str, float] = field(default_factory=dict)

    @property
    def is_correct(self) -> bool:
        return self.value == 1.0 if self.correct is None else self.correct


def as_score(result: Any, where: str) -> Score:
    """What a score function returned, as a `Score`.

    Args:
        result: a number, a `Score`, or verl's dictionary with `score` (its other numbers are logged, and `acc` says
            whether the answer is right).
        where: names the function in errors.

    Raises:
        InfraError: it is none of these, or a number in it is NaN or infinite.
    """
    if isinstance(result, bool | int | float):
        result = Score(float(result))
    elif isinstance(result, dict) and "score" in result:
        acc = result.get("acc")
        numbers = {name: float(value) for name, value in result.items() if isinstance(value, bool | int | float)}
        value = numbers.pop("score", math.nan)
        result = Score(value, None if acc is None else bool(acc), numbers)
    if not isinstance(result, Score):
        raise InfraError(f"{where} returned {type(result).__name__}; it must return a number, a Score or a dictionary")
    for name, value in [("value", result.value), *result.logged.items()]:
        if not math.isfinite(value):
            raise InfraError(f"{where} returned {value} as its {name}")
    return result
