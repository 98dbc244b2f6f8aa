"""RunTally: adds up a run trajectory by trajectory, so that a run of any length fits into memory."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from ...schemas.call_record import CallRecord
from ...schemas.trajectory import Trajectory
from .summary import Outcome, RunSummary, ToolSummary, pass_at_k


@dataclass(slots=True)
class _ToolTally:
    calls: int = 0
    ran: int = 0
    run_ms: float = 0.0
    queue_ms: float = 0.0
    errors: Counter[str] = field(default_factory=Counter)

    def add(self, record: CallRecord) -> None:
        self.calls += 1
        if record.executed:
            self.ran += 1
            self.run_ms += record.run_ms
            self.queue_ms += record.queue_ms
        if record.error_kind is not None:
            self.errors[record.error_kind.value] += 1

    def summary(self) -> ToolSummary:
        ran = self.ran or 1
        errors = dict(sorted(self.errors.items()))
        return ToolSummary(calls=self.calls, errors=errors, run_ms=self.run_ms / ran, queue_ms=self.queue_ms / ran)


@dataclass(slots=True)
class RunTally:
    """Attributes: generated_tokens, calls, correct, judged: what a progress bar shows.

    `judged` are those whose reward tells right from wrong.
    """

    trajectories: int = 0
    scored: int = 0
    judged: int = 0
    correct: int = 0
    generated_tokens: int = 0
    calls: int = 0
    _reward: float = 0.0
    _parts: Counter[str] = field(default_factory=Counter)
    _counts: Counter[str] = field(default_factory=Counter)
    _seconds: Counter[str] = field(default_factory=Counter)
    _stop_reasons: Counter[str] = field(default_factory=Counter)
    _error_kinds: Counter[str] = field(default_factory=Counter)
    _turns: dict[Outcome, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    _tools: dict[str, _ToolTally] = field(default_factory=lambda: defaultdict(_ToolTally))
    _groups: dict[str, tuple[int, int]] = field(default_factory=dict)
    _failed: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    @property
    def mean_reward(self) -> float | None:
        return self._reward / self.scored if self.scored else None

    def add(self, trajectory: Trajectory) -> None:
        self.trajectories += 1
        self._stop_reasons[trajectory.stop_reason.value] += 1
        generated = sum(trajectory.response_mask)
        self.generated_tokens += generated
        self._counts["turns"] += trajectory.num_turns
        self._counts["context_tokens"] += len(trajectory.response_mask) - generated
        self._counts["draft_calls"] += trajectory.draft_calls
        self._counts["images"] += len(trajectory.images)
        for name in ("generate_s", "queue_s", "run_s"):
            self._seconds[name] += getattr(trajectory.timing, name)
        self._turns[self._add_outcome(trajectory)][trajectory.num_turns] += 1
        self._add_records(trajectory.records)

    def _add_outcome(self, trajectory: Trajectory) -> Outcome:
        rewards = trajectory.rewards
        correct = None if rewards is None else rewards.correct
        judged_before, correct_before = self._groups.get(trajectory.sample.sample_id, (0, 0))
        self._groups[trajectory.sample.sample_id] = (
            judged_before + (correct is not None),
            correct_before + bool(correct),
        )
        self.judged += correct is not None
        self.correct += bool(correct)
        if trajectory.infra_failed:
            self._failed[_cause(trajectory)].append(trajectory.trajectory_id)
        if rewards is None:
            return "masked"
        self.scored += 1
        self._reward += rewards.total
        self._parts.update(rewards.parts)
        return "unscored" if correct is None else "correct" if correct else "wrong"

    def _add_records(self, records: Iterable[CallRecord]) -> None:
        for record in records:
            self.calls += 1
            self._counts["repaired"] += record.repaired
            self._counts["images_left_out"] += record.images_left_out
            if record.tool:
                self._tools[record.tool].add(record)
            if record.error_kind is not None:
                self._error_kinds[record.error_kind.value] += 1

    def summary(self, wall_s: float) -> RunSummary:
        """`wall_s`: seconds by the clock that the run took."""
        return RunSummary(
            trajectories=self.trajectories,
            questions=len(self._groups),
            scored=self.scored,
            masked=sum(map(len, self._failed.values())),
            failed=dict(sorted(self._failed.items())),
            accuracy=self.correct / self.judged if self.judged else None,
            pass_at_k=pass_at_k([group for group in self._groups.values() if group[0]]),
            mean_reward=self.mean_reward,
            reward_parts={name: value / self.scored for name, value in sorted(self._parts.items())},
            mean_turns=self._counts["turns"] / self.trajectories if self.trajectories else 0.0,
            turns={outcome: dict(sorted(turns.items())) for outcome, turns in self._turns.items()},
            generated_tokens=self.generated_tokens,
            context_tokens=self._counts["context_tokens"],
            stop_reasons=dict(sorted(self._stop_reasons.items())),
            tools={name: tally.summary() for name, tally in sorted(self._tools.items())},
            error_kinds=dict(sorted(self._error_kinds.items())),
            repaired_calls=self._counts["repaired"],
            draft_calls=self._counts["draft_calls"],
            images=self._counts["images"],
            images_left_out=self._counts["images_left_out"],
            generate_s=self._seconds["generate_s"],
            queue_s=self._seconds["queue_s"],
            run_s=self._seconds["run_s"],
            wall_s=wall_s,
        )


def summarize(trajectories: Iterable[Trajectory], wall_s: float) -> RunSummary:
    """Reduce a run to its numbers."""
    tally = RunTally()
    for trajectory in trajectories:
        tally.add(trajectory)
    return tally.summary(wall_s)


def _cause(trajectory: Trajectory) -> str:
    """What of ours failed: the kind of the first call that did, or how the trajectory ended."""
    kinds = (record.error_kind.value for record in trajectory.records if record.is_infra and record.error_kind)
    return next(kinds, trajectory.stop_reason.value)
