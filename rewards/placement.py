"""Which token of the response carries which reward, for trainers that look at tokens.

Rewards lie on tokens that the model wrote: never on the prompt, on tool output or on template text.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping

from ..schemas.trajectory import Trajectory

FINAL = -1
"""In place of a position: the last token that the model wrote."""


def turn_ends(trajectory: Trajectory) -> dict[int, int]:
    """Turn -> position of its last token in `response_ids`, for turns in which the model wrote any."""
    return {span.turn: span.end - 1 for span in trajectory.spans if span.kind == "assistant" and span.end > span.start}


def position_of_turn(ends: Mapping[int, int], turn: int) -> int:
    """Where a reward earned in `turn` lies: its last token, or where it has none the last token before it."""
    earlier = [end for number, end in ends.items() if number <= turn]
    return max(earlier) if earlier else min(ends.values(), default=FINAL)


def placed(trajectory: Trajectory, total: float, somewhere: Iterable[tuple[int, float]]) -> list[tuple[int, float]]:
    """(position in `response_ids`, reward), by position; the rewards add up to `total`.

    Args:
        total: of the trajectory, clipping included.
        somewhere: (position, reward) of what does not belong to the last token, which carries the rest.

    Returns:
        An empty list where the model wrote nothing.
    """
    ends = turn_ends(trajectory)
    if not ends:
        return []
    last = max(ends.values())
    by_position: defaultdict[int, list[float]] = defaultdict(list)
    for position, reward in somewhere:
        by_position[last if position == FINAL else position].append(reward)
    elsewhere = {position: math.fsum(rewards) for position, rewards in by_position.items() if position != last}
    elsewhere[last] = total - math.fsum(elsewhere.values())
    return sorted((position, reward) for position, reward in elsewhere.items() if reward)
