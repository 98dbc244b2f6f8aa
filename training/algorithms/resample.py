"""Which trajectories of a question are trained on: GRPO-RoC's choice, and DAPO's filter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_EPSILON = 0.1


@dataclass(frozen=True, slots=True)
class Quality:
    """What GRPO-RoC looks at in a trajectory.

    Attributes:
        calls, errors: tool calls, and those of them that failed through the model's doing.
        answers: how many answers it marks. turns: assistant turns.
    """

    calls: int
    errors: int
    answers: int
    turns: int

    @property
    def penalty(self) -> float:
        """p_err + p_format (rStar2-Agent, Shang et al., 2025, arXiv 2508.20722, section 3.2).

        p_err is the share of calls that failed, 0.5 without a call; p_format is 1 without an answer, else
        min(1, (answers - 1) / turns).
        """
        errors = self.errors / self.calls if self.calls else 0.5
        form = 1.0 if self.answers == 0 else min(1.0, (self.answers - 1) / max(1, self.turns))
        return errors + form


def resample_on_correct(
    correct: Sequence[bool], quality: Sequence[Quality], keep: int, rng: np.random.Generator
) -> list[int]:
    """Group relative policy optimisation with resampling on correct (same paper).

    Of more rollouts than are trained on, half of each kind is kept: wrong ones evenly by chance, so that failures stay
    diverse, correct ones with a probability inversely proportional to their penalty, so that clean ones prevail. Where
    `keep` is not half of all, each kind keeps its share, rounded, and both at least one.

    In a run of verl the sampler does it: `rollbox.resample`.

    The paper's weight 1 / penalty has no value for a clean trajectory; here it is 1 / (0.1 + penalty).

    Args:
        correct, quality: of the trajectories of one question. keep: how many to choose.

    Returns:
        Their positions, in order.

    Raises:
        ValueError: `keep` is larger than the group, or smaller than 1.
    """
    number = len(correct)
    if not 1 <= keep <= number:
        raise ValueError(f"keep: {keep} of a group of {number}")
    right = [i for i in range(number) if correct[i]]
    wrong = [i for i in range(number) if not correct[i]]
    if not right or not wrong or keep == 1:
        pool = right or wrong if not (right and wrong) else list(range(number))
        weights = [1 / (_EPSILON + quality[i].penalty) if correct[i] else 1.0 for i in pool]
        return sorted(_drawn(pool, weights, keep, rng))
    of_right = min(max(1, round(keep * len(right) / number)), keep - 1, len(right))
    of_wrong = min(keep - of_right, len(wrong))
    of_right = keep - of_wrong
    weights = [1 / (_EPSILON + quality[i].penalty) for i in right]
    return sorted(_drawn(right, weights, of_right, rng) + _drawn(wrong, [1.0] * len(wrong), of_wrong, rng))


def _drawn(pool: Sequence[int], weights: Sequence[float], number: int, rng: np.random.Generator) -> list[int]:
    shares = np.asarray(weights, dtype=np.float64)
    return [int(i) for i in rng.choice(np.asarray(pool), size=number, replace=False, p=shares / shares.sum())]


def groups_with_signal(groups: Sequence[str], rewards: Sequence[float]) -> set[str]:
    """DAPO's dynamic sampling (Yu et al., 2025, arXiv 2503.14476, section 3.2): questions whose rewards differ.

    Args:
        groups: the question of each trajectory. rewards: of each, before shaping, such as the accuracy.
    """
    seen: dict[str, set[float]] = {}
    for group, reward in zip(groups, rewards, strict=True):
        seen.setdefault(group, set()).add(float(reward))
    return {group for group, values in seen.items() if len(values) > 1}


def zero_std_share(groups: Sequence[str], rewards: Sequence[float]) -> float:
    """Share of questions whose trajectories all earn the same: what `rollbox diagnose` calls "no signal"."""
    number = len(set(groups))
    return 1.0 - len(groups_with_signal(groups, rewards)) / number if number else 0.0
