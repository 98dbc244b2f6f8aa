"""The `rollbox:` section of a trainer's configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from ..rewards.trajectory import RewardWeights
from ..rollout.loop import RolloutLimits
from ..schemas.validation import validated
from ..tools.dispatch import DispatchLimits
from ..tools.truncate import Keep
from .resampling import ResampleSettings

AGENT_LOOP = "rollbox_agent"
"""Value of `actor_rollout_ref.rollout.agent.default_agent_loop`, or of the data set's column `agent_name`."""


class Weights(BaseModel):
    """Weights of the reward's parts (see `rewards.trajectory.RewardWeights`), or a rewards file in their place.

    Attributes:
        file: rewards YAML; relative to the working directory of the processes. Its parts have their own weights, and
            its tool rewards count, each at its token.
    """

    model_config = ConfigDict(extra="forbid")

    correct: float = Field(default=1.0, allow_inf_nan=False)
    format: float = Field(default=0.1, allow_inf_nan=False)
    tool: float = Field(default=1.0, allow_inf_nan=False)

    file: str | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if self.file is not None and self.model_fields_set - {"file"}:
            raise ValueError("give weights or a file, not both; a file holds its own weights")
        return self

    @property
    def path(self) -> Path | None:
        return None if self.file is None else Path(self.file)

    def as_reward_weights(self) -> RewardWeights:
        return RewardWeights(correct=self.correct, format=self.format, tool=self.tool)


class TrainingSettings(BaseModel):
    """What the agent loop `rollbox_agent` and its reward manager can be told.

    Attributes:
        max_turns: assistant turns; verl's `multi_turn.max_assistant_turns` wins where it is set.
        max_calls_per_turn: calls run of one turn; the model is told of each that is not.
        max_invalid_turns: turns in a row without one readable call before a trajectory ends.
        call_timeout_s, trajectory_timeout_s: seconds by the clock.
        max_output_chars: characters of a tool's text that the model sees; `keep` says which end survives.
        state_groups: tell `rollbox_gigpo` which turns began in the same state.
        resample: train on some of each question's trajectories only, by GRPO-RoC; None trains on all.
        sampler_poll_s: seconds between two looks of the sampler at what has finished (verl's own default).
        max_infra_failed_share: share of a batch that may fail through our fault before the run is stopped.
        tools_config_file: tools that our loop loads itself, for what verl's loader does not read: functions and MCP
            servers. None takes those of verl's `multi_turn.tool_config_path`.
        records_dir: where the trajectories of each step are written, one line of JSON each; None writes none.
        reward_model: the model's part of the reward under `rollbox_hybrid` (see `hybrid_reward`).
    """

    model_config = ConfigDict(extra="forbid")

    max_turns: int = Field(default=8, ge=1)
    max_calls_per_turn: int = Field(default=4, ge=1)
    max_invalid_turns: int = Field(default=3, ge=1)
    call_timeout_s: float = Field(default=60.0, gt=0, allow_inf_nan=False)
    trajectory_timeout_s: float = Field(default=600.0, gt=0, allow_inf_nan=False)
    max_output_chars: int = Field(default=8000, ge=1)
    keep: Keep = "both"
    max_infra_failed_share: float = Field(default=0.3, ge=0, le=1)
    tools_config_file: str | None = None
    records_dir: str | None = None
    rewards: Weights = Field(default_factory=Weights)
    reward_model: dict[str, Any] | None = None
    state_groups: bool = False
    resample: ResampleSettings | None = None
    sampler_poll_s: float = Field(default=2.0, gt=0, allow_inf_nan=False)

    def limits(self, max_response_tokens: int) -> RolloutLimits:
        """The limits of one trajectory.

        Args:
            max_response_tokens: verl's `rollout.response_length`.
        """
        dispatch = DispatchLimits(
            call_timeout_s=self.call_timeout_s, max_output_chars=self.max_output_chars, keep=self.keep
        )
        return RolloutLimits(
            max_turns=self.max_turns,
            max_calls_per_turn=self.max_calls_per_turn,
            max_invalid_turns=self.max_invalid_turns,
            max_response_tokens=max_response_tokens,
            trajectory_timeout_s=self.trajectory_timeout_s,
            dispatch=dispatch,
        )


def read_settings(config: Any) -> TrainingSettings:
    """The settings of a whole trainer configuration (an OmegaConf node).

    Raises:
        ConfigError: a key of the `rollbox` section is unknown or its value wrong.
    """
    from omegaconf import OmegaConf

    settings = settings_of(OmegaConf.select(config, "rollbox"))
    turns = OmegaConf.select(config, "actor_rollout_ref.rollout.multi_turn.max_assistant_turns")
    if turns is None:
        return settings
    where = "actor_rollout_ref.rollout.multi_turn.max_assistant_turns"
    counted = validated(TrainingSettings, {"max_turns": turns}, where).max_turns
    return settings.model_copy(update={"max_turns": counted})


def settings_of(section: Any) -> TrainingSettings:
    """The settings of the `rollbox` section alone (an OmegaConf node, a dictionary, or None).

    Raises:
        ConfigError: as `read_settings`.
    """
    if section is None or isinstance(section, dict):
        return validated(TrainingSettings, section or {}, "rollbox")
    from omegaconf import OmegaConf

    if OmegaConf.is_config(section):
        section = OmegaConf.to_container(section, resolve=True)
    return validated(TrainingSettings, section, "rollbox")
