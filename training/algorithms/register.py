"""Enter our algorithms in verl's registries."""

from __future__ import annotations

from ...schemas.errors import ConfigError
from . import estimators, losses

ESTIMATORS = {
    "rollbox_turn_grpo": estimators.turn_grpo,
    "rollbox_gigpo": estimators.gigpo,
    "rollbox_turn_reinforce_plus_plus": estimators.turn_reinforce_plus_plus,
}
"""Values of `algorithm.adv_estimator`."""
LOSSES = {"rollbox_turn_clip": losses.turn_clip_loss}
"""Values of `actor_rollout_ref.actor.policy_loss.loss_mode`."""


def register_algorithms() -> None:
    """Register everything; again it changes nothing.

    Raises:
        ConfigError: a name is taken. verl itself would let the last loss win in silence.
    """
    from verl.trainer.ppo.core_algos import (
        ADV_ESTIMATOR_REGISTRY,
        POLICY_LOSS_REGISTRY,
        register_adv_est,
        register_policy_loss,
    )

    for registry, ours, what in (
        (ADV_ESTIMATOR_REGISTRY, ESTIMATORS, "advantage estimators"),
        (POLICY_LOSS_REGISTRY, LOSSES, "policy losses"),
    ):
        for name, function in ours.items():
            if registry.get(name, function) is not function:
                raise ConfigError(f"verl's {what}: the name {name!r} is taken by {registry[name]!r}")
    for name, function in ESTIMATORS.items():
        register_adv_est(name)(function)
    for name, loss in LOSSES.items():
        register_policy_loss(name)(loss)
