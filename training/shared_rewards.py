"""The rewards of a training process: opened when they are first needed, and left open."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Self

from ..rewards.compose import RewardComposition
from ..rewards.trajectory import rewards_of, trajectory_of_text
from ..rollout.runner import score_into
from ..schemas.errors import ConfigError
from ..schemas.trajectory import Rewards, Sample, Trajectory
from .settings import Weights
from .verl_rows import truth_text


class SharedRewards:
    """One composition of rewards for all trajectories of a worker.

    verl's workers have no end at which to close anything: what the rewards hold ends with the process, a sandbox of its
    own included.

    Attributes:
        of_file: they are a rewards file's, which looks at whole trajectories.
    """

    def __init__(self, rewards: RewardComposition, *, of_file: bool = False) -> None:
        self._rewards = rewards
        self.of_file = of_file
        self._opening = asyncio.Lock()
        self._is_open = False

    @classmethod
    def of_settings(cls, settings: Weights) -> Self:
        """What the `rollbox.rewards` section says.

        Raises:
            ConfigError: the rewards file is wrong.
        """
        if settings.file is None:
            return cls(RewardComposition(settings.as_reward_weights().config()))
        return cls(rewards_of(settings.path), of_file=True)

    @property
    def part_names(self) -> tuple[str, ...]:
        return tuple(self._rewards.config.parts)

    async def score(self, trajectory: Trajectory) -> Rewards | None:
        """See `RewardComposition.score`."""
        return await (await self._opened()).score(trajectory)

    async def score_into(self, trajectory: Trajectory) -> None:
        """Set the trajectory's rewards. A fault of ours masks it.

        Raises:
            ConfigError: it cannot be scored at all.
        """
        await score_into(trajectory, (await self._opened()).score)

    async def score_text(
        self, answer: str, data_source: str, ground_truth: Any, extra_info: Mapping[str, Any] | None
    ) -> Rewards | None:
        """Score the model's last words alone.

        Raises:
            ConfigError: as above, or there is no ground truth. InfraError: scoring failed.
        """
        if ground_truth is None:
            raise ConfigError("reward_model.ground_truth: is missing")
        sample = Sample(
            sample_id="row",
            data_source=data_source,
            messages=[{"role": "user", "content": ""}],
            ground_truth=truth_text(ground_truth),
            extra_info=dict(extra_info or {}),
        )
        return await (await self._opened()).score(trajectory_of_text(sample, answer))

    def info(self, rewards: Rewards | None) -> dict[str, float | None]:
        """verl's `reward_extra_info`: `score`, `acc` and each part after weighting; the same keys for each trajectory.

        Args:
            rewards: None for a trajectory that is left out of the loss, which has no accuracy.
        """
        names = self._rewards.config.parts
        if rewards is None:
            return {"score": 0.0, "acc": None, **dict.fromkeys(names)}
        found: dict[str, float | None] = {
            name: sum(value for key, value in rewards.parts.items() if key.partition("/")[0] == name) for name in names
        }
        return {"score": rewards.total, "acc": float(bool(rewards.correct)), **found}

    async def _opened(self) -> RewardComposition:
        async with self._opening:
            if not self._is_open:
                await self._rewards.__aenter__()
                self._is_open = True
        return self._rewards
