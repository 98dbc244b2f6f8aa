"""Rewards that only the whole group of a question tells, added in the batch before advantages are computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..rewards.group_cost import with_group_costs
from ..schemas.reward_config import RewardConfig
from ..schemas.trajectory import Rewards
from .batch_rows import BatchRow


def with_group_rewards(rows: Sequence[BatchRow], config: RewardConfig) -> list[BatchRow]:
    """The rows with `optimal_calls: group` parts in scores, reward info and record.

    Args:
        rows: all trajectories of the batch, those that were not scored among them, which stay as they are.
        config: of the rewards file.
    """
    found = list(rows)
    questions: dict[str, list[int]] = {}
    for position, row in enumerate(rows):
        if row.scores is not None and row.record is not None and row.record["rewards"] is not None:
            questions.setdefault(row.key.rsplit("_", 2)[0], []).append(position)
    for positions in questions.values():
        before = [_rewards(rows[position]) for position in positions]
        after = with_group_costs(config, [(old, _last(rows[i])) for old, i in zip(before, positions, strict=True)])
        for position, old, new in zip(positions, before, after, strict=True):
            found[position] = _changed(rows[position], old, new, tuple(config.group_parts))
    return found


def _rewards(row: BatchRow) -> Rewards:
    assert row.record is not None
    return Rewards.model_validate(row.record["rewards"])


def _last(row: BatchRow) -> int:
    """Position of the last token that the model wrote."""
    return max(position for position, bit in enumerate(row.response_mask) if bit)


def _changed(row: BatchRow, old: Rewards, new: Rewards, names: Sequence[str]) -> BatchRow:
    assert row.scores is not None
    assert row.record is not None
    added, scores, info = new.total - old.total, list(row.scores), dict(row.reward_info)
    scores[_last(row)] += added
    if "score" in info:
        info["score"] += added
    info.update({name: new.parts[name] for name in names if name in info and name in new.parts})
    return replace(row, scores=scores, reward_info=info, record={**row.record, "rewards": new.model_dump()})
