"""What is different in two trajectories: turn by turn, and within a turn word by word."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import zip_longest

from ..schemas.message import content_text
from ..schemas.trajectory import Trajectory
from .conversation import prompt_length
from .rows import clip
from .shown_text import Folded, folded

# difflib takes seconds for more: its time grows with the square of the number of pieces.
_MOST_PIECES = 2500
_MOST_CHARS = 40_000
_PIECES = re.compile(r"\s+|\w+|[^\w\s]")


@dataclass(frozen=True, slots=True)
class Step:
    """One message after the prompt: an assistant turn as sampled, or a tool's answer."""

    role: str
    text: str


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of text; `changed`: the other side doesn't have it."""

    text: str
    changed: bool


@dataclass(frozen=True, slots=True)
class StepPair:
    """Two steps that stand in each other's place; None where a side has none.

    Attributes:
        same: the text of both, when they are equal.
        left, right: pieces that make up the text of each side.
        cut: the texts are too long, and only their beginnings are compared.
    """

    role: str
    same: Folded | None
    left: list[Piece] | None
    right: list[Piece] | None
    cut: bool = False


def steps(trajectory: Trajectory) -> list[Step]:
    """What came after the prompt."""
    found = []
    turn = 0
    for message in trajectory.messages[prompt_length(trajectory) :]:
        text = content_text(message.get("content"))
        if message.get("role") == "assistant":
            if turn < len(trajectory.assistant_texts):
                text = trajectory.assistant_texts[turn]
            turn += 1
        found.append(Step(str(message.get("role", "")), text))
    return found


def step_pairs(left: Trajectory, right: Trajectory) -> list[StepPair]:
    """Align the steps of two trajectories: equal ones first, then those between them in order."""
    a, b = steps(left), steps(right)
    pairs: list[StepPair] = []
    for tag, a0, a1, b0, b1 in SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        if tag == "equal":
            pairs += [StepPair(step.role, folded(step.text), None, None) for step in a[a0:a1]]
        else:
            pairs += [_pair(x, y) for x, y in zip_longest(a[a0:a1], b[b0:b1])]
    return pairs


def compare(left: str, right: str) -> tuple[list[Piece], list[Piece]]:
    """Both texts in pieces: by words, or by lines where there are too many words, or whole."""
    a, b = _divided(left, right)
    sides: tuple[list[Piece], list[Piece]] = ([], [])
    for tag, a0, a1, b0, b1 in SequenceMatcher(None, a, b).get_opcodes():
        for side, pieces in zip(sides, (a[a0:a1], b[b0:b1]), strict=True):
            if pieces:
                side.append(Piece("".join(pieces), tag != "equal"))
    return sides


def _pair(left: Step | None, right: Step | None) -> StepPair:
    if left is not None and right is not None and left.role == right.role:
        a, b = clip(left.text, _MOST_CHARS), clip(right.text, _MOST_CHARS)
        first, second = compare(a, b)
        return StepPair(left.role, None, first, second, cut=a != left.text or b != right.text)
    role = "/".join(dict.fromkeys(step.role for step in (left, right) if step is not None))
    return StepPair(role, None, _whole(left), _whole(right))


def _whole(step: Step | None) -> list[Piece] | None:
    return None if step is None else [Piece(clip(step.text, _MOST_CHARS), changed=True)]


def _divided(left: str, right: str) -> tuple[Sequence[str], Sequence[str]]:
    for divide in (_PIECES.findall, lambda text: text.splitlines(keepends=True)):
        a, b = divide(left), divide(right)
        if max(len(a), len(b)) <= _MOST_PIECES:
            return a, b
    return [left], [right]
