"""Split a model's reasoning into steps, and find the token on which each ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..schemas.trajectory import Span, Trajectory
from .placement import FINAL, position_of_turn, turn_ends
from .token_ends import end_tokens

MAX_STEPS = 256
"""Each step is sent with all before it, so that their number counts by its square, and a model can write any number."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step.

    Attributes:
        turn: the assistant turn it belongs to.
        text: without the delimiter and white space around it.
        end: characters of the turn's text up to the step's last one, and with it.
    """

    turn: int
    text: str
    end: int


def split_steps(trajectory: Trajectory, delimiter: str = "\n\n", limit: int = MAX_STEPS) -> list[Step]:
    """The steps of all turns, in order; blank ones are left out. Tool output is no step.

    From the `limit`-th on the rest of each turn is one step.
    """
    steps: list[Step] = []
    for turn, text in enumerate(trajectory.assistant_texts):
        start = 0
        while start <= len(text):
            found = text.find(delimiter, start) if len(steps) + 1 < limit else -1
            end = len(text) if found < 0 else found
            piece = text[start:end]
            if piece.strip():
                steps.append(Step(turn, piece.strip(), start + len(piece.rstrip())))
            start = end + len(delimiter)
    return steps


def step_ends(trajectory: Trajectory, steps: Sequence[Step]) -> list[int]:
    """Position in `response_ids` of the token that holds each step's last character; `placement.FINAL` where nothing
    was generated.

    A trajectory that was read from a file knows no tokenizer. There the position is that share of the turn's tokens
    which the step's end is of its characters. No position leaves its turn, and the order of steps is kept.

    Args:
        steps: of this trajectory, in order.
    """
    spans = {span.turn: span for span in trajectory.spans if span.kind == "assistant" and span.end > span.start}
    ends = turn_ends(trajectory)
    positions: list[int] = []
    for turn in dict.fromkeys(step.turn for step in steps):
        mine = [step.end for step in steps if step.turn == turn]
        if turn in spans:
            positions += _within_turn(trajectory, spans[turn], mine)
        else:
            positions += [position_of_turn(ends, turn) if ends else FINAL] * len(mine)
    return positions


def _within_turn(trajectory: Trajectory, span: Span, ends: Sequence[int]) -> list[int]:
    text, length = trajectory.assistant_texts[span.turn], span.end - span.start
    found: list[int | None] = [None] * len(ends)
    if trajectory.decode is not None:
        found = end_tokens(trajectory.response_ids[span.start : span.end], text, ends, trajectory.decode)
    shares = [min(length - 1, max(0, round(end / len(text) * length) - 1)) for end in ends]
    last = 0
    positions: list[int] = []
    for exact, share in zip(found, shares, strict=True):
        last = max(last, share if exact is None else exact)
        positions.append(span.start + last)
    return positions
