"""The numbers of a run."""

from __future__ import annotations

from math import comb
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Outcome = Literal["correct", "wrong", "unscored", "masked"]


class ToolSummary(BaseModel):
    """One tool's calls. `run_ms` and `queue_ms` are means over the calls that ran."""

    model_config = ConfigDict(extra="forbid")

    calls: int
    errors: dict[str, int]
    run_ms: float
    queue_ms: float


class RunSummary(BaseModel):
    """Attributes:
    questions: different samples; there may be several trajectories of each.
    scored: trajectories with a reward. accuracy: share of the correct ones among those whose reward tells right from
        wrong; None when none does.
    pass_at_k: k -> probability that one of k trajectories of a question is correct, over questions with at least k
        such ones (the unbiased estimate of Chen et al. 2021, arXiv 2107.03374).
    masked: trajectories left out because something of ours failed. failed: error kind -> their ids.
    turns: outcome -> assistant turns -> trajectories. `unscored` have a reward that does not tell right from wrong.
    images: shown to the model, prompts' and tools'. images_left_out: of tools, which the model was only told of.
    generate_s, queue_s, run_s: summed over the trajectories. wall_s: of the run, or of its last part if it was resumed.
    """

    model_config = ConfigDict(extra="forbid")

    trajectories: int
    questions: int
    scored: int
    masked: int
    failed: dict[str, list[str]] = Field(default_factory=dict)
    accuracy: float | None
    pass_at_k: dict[int, float]
    mean_reward: float | None
    reward_parts: dict[str, float]
    mean_turns: float
    turns: dict[Outcome, dict[int, int]]
    generated_tokens: int
    context_tokens: int
    stop_reasons: dict[str, int]
    tools: dict[str, ToolSummary]
    error_kinds: dict[str, int]
    repaired_calls: int
    draft_calls: int
    images: int = 0
    images_left_out: int = 0
    generate_s: float
    queue_s: float
    run_s: float
    wall_s: float


def pass_at_k(groups: list[tuple[int, int]]) -> dict[int, float]:
    """The estimate for k = 1, 2, 4, … and the largest group.

    Args:
        groups: (told right from wrong, correct) of each question.
    """
    largest = max((scored for scored, _ in groups), default=0)
    ks = sorted({1 << i for i in range(largest.bit_length())} | {largest}) if largest else []
    return {k: _mean([_pass(n, c, k) for n, c in groups if n >= k]) for k in ks}


def _pass(n: int, c: int, k: int) -> float:
    return 1.0 - comb(n - c, k) / comb(n, k)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
