"""Settings of the estimators, out of verl's `algorithm` section: `+algorithm.rollbox.turn_weight=0.5`."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from ...schemas.validation import validated


class EstimatorSettings(BaseModel):
    """What the estimators can be told.

    Attributes:
        turn_weight: how much turn- or step-level advantages count beside the trajectory's (omega in GiGPO).
        gamma: discount by turn of the returns; verl's `algorithm.gamma` is a discount by token and is left alone.
        by_std: divide by the standard deviation of the group.
    """

    model_config = ConfigDict(extra="forbid")

    turn_weight: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    gamma: float = Field(default=1.0, ge=0, le=1)
    by_std: bool = True


def settings_of(config: Any) -> EstimatorSettings:
    """The settings in verl's `algorithm` section (an OmegaConf node, its dataclass, or None).

    `norm_adv_by_std_in_grpo` of that section counts unless `rollbox.by_std` is given.

    Raises:
        ConfigError: a key is unknown or its value wrong.
    """
    section = _get(config, "rollbox") or {}
    data = {name: section[name] for name in section}
    by_std = _get(config, "norm_adv_by_std_in_grpo")
    if by_std is not None:
        data.setdefault("by_std", bool(by_std))
    return validated(EstimatorSettings, data, "algorithm.rollbox")


def _get(config: Any, name: str) -> Any:
    if config is None:
        return None
    get = getattr(config, "get", None)
    return get(name, None) if get is not None else getattr(config, name, None)
