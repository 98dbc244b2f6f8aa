"""Score: what a score function returns when a number does not say it all."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, SupportsFloat

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
        result: a number, numpy's and torch's scalars among them, a `Score`, or verl's dictionary with `score` (its
            other numbers are logged, and `acc` says whether the answer is right).
        where: names the function in errors.

    Raises:
        InfraError: it is none of these, or a number in it is NaN or infinite.
    """
    if isinstance(result, dict) and "score" in result:
        acc = result.get("acc")
        logged = {str(name): value for name, value in result.items() if name != "score" and _is_number(value)}
        right = None if acc is None else _finite(acc, "acc", where) != 0
        result = Score(result["score"], right, logged)
    elif _is_number(result):
        result = Score(result)
    if not isinstance(result, Score):
        raise InfraError(
            f"{where} returned {type(result).__name__}; it must return a number, a Score or a dictionary with 'score'"
        )
    logged = {name: _finite(value, name, where) for name, value in result.logged.items()}
    return Score(_finite(result.value, "value", where), result.correct, logged)


def _is_number(value: Any) -> bool:
    return isinstance(value, float | int) or (isinstance(value, SupportsFloat) and getattr(value, "ndim", 0) == 0)


def _finite(value: Any, name: str, where: str) -> float:
    if not _is_number(value):
        raise InfraError(f"{where} returned {type(value).__name__} as its {name}; it must be a number")
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise InfraError(f"{where} returned as its {name} what is no number: {error}") from error
    if not math.isfinite(number):
        raise InfraError(f"{where} returned {number} as its {name}")
    return number
