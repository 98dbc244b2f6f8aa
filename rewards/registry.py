"""Outcome scores by `data_source`."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..schemas.errors import ConfigError
from ..schemas.trajectory import Sample
from . import gsm8k

OutcomeScore = Callable[[str, str], float]
"""(solution_str, ground_truth) -> reward; 1.0 means correct."""

_OUTCOMES: dict[str, OutcomeScore] = {"openai/gsm8k": gsm8k.score, "rollbox/arithmetic": gsm8k.score}


def outcome_for(data_source: str) -> OutcomeScore:
    """The score function of a data source.

    Raises:
        ConfigError: there is none.
    """
    if data_source not in _OUTCOMES:
        raise ConfigError(f"data_source: no score for {data_source!r}; there are: {', '.join(sorted(_OUTCOMES))}")
    return _OUTCOMES[data_source]


def check_samples(samples: Iterable[Sample]) -> None:
    """Find out before the run whether every sample can be scored.

    Raises:
        ConfigError: a data source without a score, or a ground truth that is missing or cannot be read.
    """
    for sample in samples:
        if sample.ground_truth is None:
            raise ConfigError(f"sample {sample.sample_id!r}: ground_truth is missing")
        try:
            outcome_for(sample.data_source)("", sample.ground_truth)
        except ConfigError as error:
            raise ConfigError(f"sample {sample.sample_id!r}: {error}") from error
