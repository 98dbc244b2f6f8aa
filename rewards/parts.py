"""The parts that are computed here: each turns a trajectory into named numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, Protocol

from ..schemas.errors import ConfigError
from ..schemas.reward_config import (
    CallCostPart,
    FormatPart,
    OutcomePart,
    OverlongPart,
    Part,
    ToolErrorsPart,
    ToolsPart,
    VoidTurnPart,
)
from ..schemas.trajectory import Sample, Trajectory
from . import format as answer_format
from . import shaping
from .placement import FINAL, position_of_turn, turn_ends
from .registry import ScoreEntry
from .tool_rewards import by_tool


@dataclass(frozen=True, slots=True)
class Measured:
    """What a part found.

    Attributes:
        values: full name -> value before weighting.
        logged: further numbers, by full name; they earn nothing.
        correct: whether the answer is right, from the part that knows.
        placed: (position in `response_ids`, value before weighting) of what does not belong to the last token.
    """

    values: dict[str, float]
    logged: Mapping[str, float] = field(default_factory=dict)
    correct: bool | None = None
    placed: tuple[tuple[int, float], ...] = ()


def clipped(part: Part, value: float) -> float:
    """The value before weighting that counts."""
    return value if part.clip is None else min(max(value, part.clip[0]), part.clip[1])


def sum_of(values: Iterable[float]) -> float:
    """The exact sum; NaN where `math.fsum` raises, for want of range or of a value."""
    try:
        return math.fsum(values)
    except (OverflowError, ValueError):
        return math.nan


class PartScorer(Protocol):
    """A part at work. One that holds connections or models is an async context manager too."""

    async def __call__(self, trajectory: Trajectory) -> Measured:
        """
        Raises:
            ConfigError: the sample cannot be scored by this part.
            InfraError: scoring failed through us.
        """


def function_part(name: str, measure: Callable[[Trajectory], float]) -> PartScorer:
    """A part that is one number of the trajectory."""

    async def scorer(trajectory: Trajectory) -> Measured:
        return Measured({name: measure(trajectory)})

    return scorer


def outcome_part(name: str, part: OutcomePart, find: Callable[[str], ScoreEntry]) -> PartScorer:
    """Args: find: gives the score function of a data source."""

    async def scorer(trajectory: Trajectory) -> Measured:
        sample = trajectory.sample
        if sample.ground_truth is None:
            raise ConfigError(f"sample {sample.sample_id!r}: ground_truth is missing")
        entry = find(sample.data_source)
        extra_info: dict[str, Any] = {**sample.extra_info, "num_turns": trajectory.num_turns}
        score = await entry(trajectory.answer_text, sample.ground_truth, extra_info)
        logged = {f"{name}/{key}": value for key, value in score.logged.items()}
        return Measured({name: score.value}, logged, score.is_correct)

    return scorer


def format_part(name: str, part: FormatPart) -> PartScorer:
    measure = answer_format.score if part.style == "answer" else answer_format.think_answer
    return function_part(name, lambda trajectory: measure(trajectory.answer_text))


def overlong_part(name: str, part: OverlongPart) -> PartScorer:
    def measure(trajectory: Trajectory) -> float:
        mask = trajectory.response_mask
        tokens = len(mask) if part.count == "all" else sum(mask)
        return shaping.overlong(tokens, part.max_tokens, part.buffer_tokens)

    return function_part(name, measure)


def optimal_calls(part: CallCostPart, sample: Sample) -> int | None:
    """The fewest calls that solve the question, where the rewards file or the sample says so; not for `group`.

    Raises:
        ConfigError: the sample does not say it.
    """
    if not isinstance(part.optimal_calls, str):
        return part.optimal_calls
    known = sample.extra_info.get(part.optimal_calls)
    if not isinstance(known, Integral) or isinstance(known, bool) or int(known) < 0:
        raise ConfigError(
            f"sample {sample.sample_id!r}: extra_info.{part.optimal_calls}: must be a number of calls, from 0 on "
            f"(got {known!r}); the rewards file reads it by `optimal_calls`"
        )
    return int(known)


def call_cost_part(name: str, part: CallCostPart) -> PartScorer:
    def measure(trajectory: Trajectory, calls: int) -> float:
        if part.of_group:
            return 0.0  # until `group_cost` has seen the others
        optimal = optimal_calls(part, trajectory.sample)
        if optimal is None:
            return shaping.call_cost(calls, part.smoothing)
        return shaping.call_cost_from_optimum(calls, optimal, part.smoothing)

    async def scorer(trajectory: Trajectory) -> Measured:
        calls = sum(r.executed and (part.tools is None or r.tool in part.tools) for r in trajectory.records)
        return Measured({name: measure(trajectory, calls)}, {f"{name}/calls": float(calls)})

    return scorer


def tool_errors_part(name: str, part: ToolErrorsPart) -> PartScorer:
    def measure(trajectory: Trajectory) -> float:
        errors = shaping.error_count(trajectory)
        return -float(errors if part.cap is None else min(errors, part.cap))

    return function_part(name, measure)


def void_turn_part(name: str, part: VoidTurnPart) -> PartScorer:
    return function_part(name, lambda trajectory: float(shaping.void_turns(trajectory) > 0))


def tools_part(name: str, part: ToolsPart) -> PartScorer:
    async def scorer(trajectory: Trajectory) -> Measured:
        found = by_tool(trajectory.records, trajectory.tool_rewards, part, trajectory.num_turns)
        placed: list[tuple[int, float]] = []
        if part.placement == "turn":
            ends = turn_ends(trajectory)
            for tool in found.values():
                placed += [(position_of_turn(ends, turn), reward) for turn, reward in tool.by_turn]
                placed.append((FINAL, tool.whole))
        return Measured({f"{name}/{tool}": reward.total for tool, reward in found.items()}, placed=tuple(placed))

    return scorer
