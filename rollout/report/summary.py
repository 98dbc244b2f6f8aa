"""The numbers of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import fmean

from pydantic import BaseModel, ConfigDict

from ...schemas.call_record import CallRecord
from ...schemas.trajectory import Trajectory


class ToolSummary(BaseModel):
    """One tool's calls. `run_ms` is the mean of the calls that ran."""

    model_config = ConfigDict(extra="forbid")

    calls: int
    errors: dict[str, int]
    run_ms: float
    queue_ms: float


class RunSummary(BaseModel):
    """Attributes:
    scored: trajectories with a reward. accuracy: share of the scored that are correct; None when none is scored.
    masked: trajectories left out because something of ours failed.
    generate_s, queue_s, run_s: summed over the trajectories. wall_s: of the whole run.
    """

    model_config = ConfigDict(extra="forbid")

    trajectories: int
    scored: int
    masked: int
    accuracy: float | None
    mean_reward: float | None
    reward_parts: dict[str, float]
    mean_turns: float
    generated_tokens: int
    context_tokens: int
    stop_reasons: dict[str, int]
    tools: dict[str, ToolSummary]
    error_kinds: dict[str, int]
    repaired_calls: int
    draft_calls: int
    generate_s: float
    queue_s: float
    run_s: float
    wall_s: float


def summarize(trajectories: Sequence[Trajectory], wall_s: float) -> RunSummary:
    """Reduce a run to its numbers. `wall_s`: seconds by the clock that the run took."""
    records = [record for trajectory in trajectories for record in trajectory.records]
    rewards = [trajectory.rewards for trajectory in trajectories if trajectory.rewards is not None]
    part_names = sorted({name for reward in rewards for name in reward.parts})
    tools = sorted({record.tool for record in records if record.tool})
    return RunSummary(
        trajectories=len(trajectories),
        scored=len(rewards),
        masked=sum(trajectory.infra_failed for trajectory in trajectories),
        accuracy=_mean([float(bool(reward.correct)) for reward in rewards]),
        mean_reward=_mean([reward.total for reward in rewards]),
        reward_parts={name: fmean(reward.parts.get(name, 0.0) for reward in rewards) for name in part_names},
        mean_turns=_mean([float(trajectory.num_turns) for trajectory in trajectories]) or 0.0,
        generated_tokens=sum(sum(trajectory.response_mask) for trajectory in trajectories),
        context_tokens=sum(len(t.response_mask) - sum(t.response_mask) for t in trajectories),
        stop_reasons=_count(trajectory.stop_reason.value for trajectory in trajectories),
        tools={tool: _tool([record for record in records if record.tool == tool]) for tool in tools},
        error_kinds=_count(record.error_kind.value for record in records if record.error_kind is not None),
        repaired_calls=sum(record.repaired for record in records),
        draft_calls=sum(trajectory.draft_calls for trajectory in trajectories),
        generate_s=sum(trajectory.timing.generate_s for trajectory in trajectories),
        queue_s=sum(trajectory.timing.queue_s for trajectory in trajectories),
        run_s=sum(trajectory.timing.run_s for trajectory in trajectories),
        wall_s=wall_s,
    )


def _tool(records: list[CallRecord]) -> ToolSummary:
    ran = [record for record in records if record.executed]
    return ToolSummary(
        calls=len(records),
        errors=_count(record.error_kind.value for record in records if record.error_kind is not None),
        run_ms=_mean([record.run_ms for record in ran]) or 0.0,
        queue_ms=_mean([record.queue_ms for record in ran]) or 0.0,
    )


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


def _count(values: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(values).items()))
