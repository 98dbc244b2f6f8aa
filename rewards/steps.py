"""Split a model's reasoning into steps, and find the token on which each ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..schemas.trajectory import Trajectory
from .placement import FINAL, position_of_turn, turn_ends


@dataclass(frozen=True, slots=True)
class Step:
    """One step.

    Attributes:
        turn: the assistant turn it belongs to.
        text: without the delimiter and white space around it.
        end: share of the turn's characters that lie up to its end, delimiter included.
    """

    turn: int
    text: str
    end: float


def split_steps(trajectory: Trajectory, delimiter: str = "\n\n") -> list[Step]:
    """The steps of all turns, in order; blank ones are left out. Tool output is no step."""
    steps: list[Step] = []
    for turn, text in enumerate(trajectory.assistant_texts):
        position = 0
        for piece in text.split(delimiter):
            position = min(len(text), position + len(piece) + len(delimiter))
            if piece.strip():
                steps.append(Step(turn, piece.strip(), position / len(text)))
    return steps


def step_ends(trajectory: Trajectory, steps: Sequence[Step]) -> list[int]:
    """Position in `response_ids` of the token on which each step ends; `placement.FINAL` where nothing was generated.

    Tokens and characters are not the same thing, and a trajectory holds no map between them: the position is that
    share of the turn's tokens which the step's end is of its characters. It never leaves the turn, and the order of
    steps is kept.
    """
    spans = {span.turn: span for span in trajectory.spans if span.kind == "assistant" and span.end > span.start}
    ends = turn_ends(trajectory)
    positions: list[int] = []
    for step in steps:
        span = spans.get(step.turn)
        if span is None:
            positions.append(position_of_turn(ends, step.turn) if ends else FINAL)
            continue
        length = span.end - span.start
        positions.append(span.start + min(length - 1, max(0, round(step.end * length) - 1)))
    return positions
