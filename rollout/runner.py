"""Roll out many samples side by side, score each, and hand them on as they finish."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from ..schemas.errors import InfraError
from ..schemas.trajectory import Rewards, Sample, Trajectory
from .loop import RolloutLoop

Score = Callable[[Trajectory], Rewards | None]


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


async def run_samples(
    loop: RolloutLoop,
    samples: Sequence[Sample],
    score: Score,
    *,
    concurrency: int = 64,
    guard: InfraGuard | None = None,
) -> AsyncIterator[Trajectory]:
    """Yield scored trajectories in the order in which they finish.

    Args:
        concurrency: trajectories in flight.

    Raises:
        InfraError: the guard's limit was passed. ConfigError: a sample cannot be scored.
    """
    guard = guard or InfraGuard()
    waiting = iter(samples)
    running: set[asyncio.Task[Trajectory]] = set()
    finished = failed = 0
    last_error: str | None = None
    try:
        while True:
            while len(running) < concurrency and (sample := next(waiting, None)) is not None:
                running.add(asyncio.create_task(_run_one(loop, sample, score)))
            if not running:
                return
            done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                trajectory = task.result()
                finished += 1
                failed += trajectory.infra_failed
                last_error = _infra_error(trajectory) or last_error
                guard.check(finished, failed, last_error)
                yield trajectory
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def _run_one(loop: RolloutLoop, sample: Sample, score: Score) -> Trajectory:
    trajectory = await loop.run(sample)
    trajectory.rewards = score(trajectory)
    return trajectory


def _infra_error(trajectory: Trajectory) -> str | None:
    if trajectory.error is not None:
        return trajectory.error
    return next((record.error for record in trajectory.records if record.is_infra), None)
