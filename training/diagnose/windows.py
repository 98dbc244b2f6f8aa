"""The beginning and the end of a metric, compared with its noise."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, pstdev

from .logs import Series

MIN_POINTS = 8
_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class Trend:
    """A metric's first quarter, its best stretch and its last quarter, as means.

    Attributes:
        noise: how much such a mean would differ by chance.
    """

    name: str
    begin: float
    end: float
    highest: float
    noise: float
    first_step: int
    last_step: int

    @property
    def rise(self) -> float:
        return self.end - self.begin

    def is_real(self, change: float) -> bool:
        """Whether a change of means is beyond the noise."""
        return abs(change) > 3 * self.noise

    def described(self) -> str:
        return (
            f"{self.name}: {self.begin:.4g} at first, {self.end:.4g} at last (steps {self.first_step}-{self.last_step})"
        )


def trend(series: Series, name: str, least: int = MIN_POINTS) -> Trend | None:
    """None where the metric is missing or has fewer than `least` finite values."""
    points = [(step, value) for step, value in series.get(name, ()) if math.isfinite(value)]
    if len(points) < least:
        return None
    values = [value for _, value in points]
    width = max(2, int(len(values) * _SHARE))
    means = [fmean(values[i : i + width]) for i in range(len(values) - width + 1)]
    # Differences of neighbours hold the noise and next to nothing of the trend.
    steps = [later - earlier for earlier, later in pairwise(values)]
    noise = pstdev(steps) / math.sqrt(2 * width) if len(steps) > 1 else 0.0
    return Trend(name, means[0], means[-1], max(means), noise, points[0][0], points[-1][0])


def first_of(series: Series, names: Iterable[str], least: int = MIN_POINTS) -> Trend | None:
    """The trend of the first metric that is there."""
    return next((found for name in names if (found := trend(series, name, least)) is not None), None)
