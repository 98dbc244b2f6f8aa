"""What a turn began from, carried with the question's id.

verl gives an estimator rewards, mask and `uid`, and nothing of what the tools said. So the replay buffer, which sees
the trajectories, appends a hash for each turn's state to the `uid`; the estimators take it off again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

_MARK = "|states="
_HASH_CHARS = 12


def state_hashes(contexts: Sequence[str]) -> list[str]:
    """A hash for each turn of what it began from.

    Args:
        contexts: for each turn, what the environment last said before it: the question for the first, the tools'
            output for the others. Equal texts are equal states (GiGPO's anchor states).
    """
    return [hashlib.sha256(context.encode()).hexdigest()[:_HASH_CHARS] for context in contexts]


def tag_uids(uids: Sequence[str], states: Sequence[Sequence[str]]) -> list[str]:
    """The ids with the hashes of each trajectory's turns."""
    return [f"{uid}{_MARK}{','.join(hashes)}" for uid, hashes in zip(uids, states, strict=True)]


def split_uids(index: Any) -> tuple[list[str], list[list[str] | None]]:
    """(question of each trajectory, its states or None), from ids with hashes or without."""
    questions: list[str] = []
    states: list[list[str] | None] = []
    for uid in index:
        question, mark, hashes = str(uid).partition(_MARK)
        questions.append(question)
        states.append(hashes.split(",") if mark else None)
    return questions, states
