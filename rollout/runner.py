"""Roll out many samples side by side, score each, and hand them on as they finish."""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from dataclasses import dataclass

from ..schemas.errors import InfraError
from ..schemas.trajectory import Rewards, Sample, Trajectory
from .loop import RolloutLoop

Score = Callable[[Trajectory], Awaitable[Rewards | None]]
_BACKOFF_S, _BACKOFF_MAX_S = 0.5, 30.0


@dataclass(frozen=True, slots=True)
class InfraGuard:
    """Stops a run in which too much fails through our fault, so that nobody trains on an outage.

    Attributes:
        max_rate: share of trajectories that may be `infra_failed`. min_finished: judged from this many on.
    """

    max_rate: float = 0.3
    min_finished: int = 8

    def check(self, finished: int, failed: int, last_error: str | None) -> None:
        """Raises `InfraError` once the rate is passed."""
        if finished >= self.min_finished and failed > self.max_rate * finished:
            raise InfraError(
                f"{failed} of {finished} trajectories failed through the infrastructure "
                f"(limit {self.max_rate:.0%}); the run is stopped. Last error: {last_error}"
            )


@dataclass(frozen=True, slots=True)
class RolloutTask:
    """One trajectory to roll out. `seed` replaces the sampling's own, so that the samples of a question differ."""

    sample: Sample
    trajectory_id: str
    seed: int | None = None


def tasks_of(samples: Iterable[Sample], n: int = 1, seed: int | None = None) -> list[RolloutTask]:
    """`n` tasks per sample, question by question, named `SAMPLE.0`, `SAMPLE.1`, …

    Args:
        seed: each task gets one of its own that follows from this and its name; None leaves them to chance.
    """
    names = [(sample, f"{sample.sample_id}.{k}") for sample in samples for k in range(n)]
    return [RolloutTask(sample, name, None if seed is None else _derived(seed, name)) for sample, name in names]


def _derived(seed: int, name: str) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed}:{name}".encode()).digest()[:4], "big")


async def run_tasks(
    loop: RolloutLoop,
    tasks: Iterable[RolloutTask],
    score: Score,
    *,
    concurrency: int = 64,
    attempts: int = 1,
    guard: InfraGuard | None = None,
) -> AsyncGenerator[Trajectory, None]:
    """Yield scored trajectories in the order in which they finish.

    Args:
        concurrency: trajectories in flight.
        attempts: how often one is tried that fails through our fault, with growing pauses; the last try is yielded.

    Raises:
        InfraError: the guard's limit was passed. ConfigError: a sample cannot be scored.
    """
    guard = guard or InfraGuard()
    waiting = iter(tasks)
    running: set[asyncio.Task[Trajectory]] = set()
    finished = failed = 0
    last_error: str | None = None
    try:
        while True:
            while len(running) < concurrency and (task := next(waiting, None)) is not None:
                running.add(asyncio.create_task(_run_one(loop, task, score, attempts)))
            if not running:
                return
            done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            outage: InfraError | None = None
            # What ends the run comes last: nothing that is finished is lost by it, and the failures are recorded too.
            for ended in sorted(done, key=_raised):
                trajectory = ended.result()
                finished += 1
                if trajectory.infra_failed:
                    failed += 1
                    last_error = _infra_error(trajectory) or last_error
                yield trajectory
                try:
                    guard.check(finished, failed, last_error)
                except InfraError as error:
                    outage = outage or error
            if outage is not None:
                raise outage
    finally:
        for ended in running:
            ended.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def _raised(task: asyncio.Task[Trajectory]) -> bool:
    return task.cancelled() or task.exception() is not None


async def _run_one(loop: RolloutLoop, task: RolloutTask, score: Score, attempts: int) -> Trajectory:
    for attempt in range(attempts):
        trajectory = await loop.run(task.sample, task.trajectory_id, seed=task.seed)
        if not trajectory.infra_failed or attempt + 1 == attempts:
            break
        await asyncio.sleep(random.uniform(0.5, 1.0) * min(_BACKOFF_S * 2**attempt, _BACKOFF_MAX_S))
    await score_into(trajectory, score)
    return trajectory


async def score_into(trajectory: Trajectory, score: Score) -> None:
    """Set the trajectory's rewards. A fault of ours masks it, and is counted like any other.

    Raises:
        ConfigError: it cannot be scored at all.
    """
    try:
        trajectory.rewards = await score(trajectory)
    except InfraError as error:
        trajectory.infra_failed = True
        trajectory.error = f"scoring failed: {error}"


def _infra_error(trajectory: Trajectory) -> str | None:
    if trajectory.error is not None:
        return trajectory.error
    return next((record.error for record in trajectory.records if record.is_infra), None)
