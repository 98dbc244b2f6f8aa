"""Before a run: is the sampler ours where it must be, and does verl train on what it keeps?"""

from __future__ import annotations

from typing import Any

from ..rewards.trajectory import rewards_of
from ..schemas.errors import ConfigError
from .resampling import ResampleSettings
from .settings import TrainingSettings


def check_sampler(config: Any, settings: TrainingSettings) -> None:
    """
    Raises:
        ConfigError: the sampler is of another mode of the trainer, is none of ours and something needs it, or the
            sizes of a batch do not fit what it keeps.
    """
    mode, name = config.trainer.v1.trainer_mode, config.trainer.v1.sampler.custom_sampler.name or ""
    wanted = "RollboxReplayBuffer" if mode == "sync" else "RollboxReplayBufferAsync"
    if name.startswith("RollboxReplayBuffer") and name != wanted:
        raise ConfigError(
            f"trainer.v1.trainer_mode={mode} needs trainer.v1.sampler.custom_sampler.name={wanted} (got {name})"
        )
    needed_by = []
    if settings.resample is not None:
        needed_by.append("rollbox.resample")
    if settings.rewards.path is not None:
        needed_by += [
            f"part {part!r} of the rewards file" for part in rewards_of(settings.rewards.path).config.group_parts
        ]
    if needed_by and (name != wanted or not config.trainer.get("use_v1", False)):
        raise ConfigError(
            f"{needed_by[0]}: only our sampler of verl's V1 trainer reads it: set trainer.use_v1=True and "
            f"trainer.v1.sampler.custom_sampler.name={wanted} (got {name or None})"
        )
    if settings.resample is not None:
        _check_sizes(config, settings.resample)


def _check_sizes(config: Any, settings: ResampleSettings) -> None:
    rollout, actor = config.actor_rollout_ref.rollout, config.actor_rollout_ref.actor
    if settings.keep >= rollout.n:
        raise ConfigError(
            f"rollbox.resample.keep: {settings.keep} of actor_rollout_ref.rollout.n={rollout.n} leaves nothing out; "
            f"the paper keeps half: roll out {2 * settings.keep}"
        )
    # verl counts a mini-batch in questions, as if all of their trajectories were there, and fills up with padding.
    kept, wanted = config.data.train_batch_size * settings.keep, actor.ppo_mini_batch_size * rollout.n
    if kept % wanted:
        fitting = kept // rollout.n
        raise ConfigError(
            f"actor_rollout_ref.actor.ppo_mini_batch_size: {actor.ppo_mini_batch_size} x {rollout.n} trajectories make "
            f"a mini-batch, and rollbox.resample keeps {kept} of a step; set it to {fitting}, or to what divides that"
        )
