"""Where a name of verl's registries comes from: estimators, losses, reward managers, agent loops, tool-call formats."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from ..rewards.registry import place_of
from ..rollout.where import Origin
from ..schemas.errors import ConfigError

_KEYS = {
    "advantage estimator": "algorithm.adv_estimator",
    "policy loss": "actor_rollout_ref.actor.policy_loss.loss_mode",
    "reward manager": "reward.reward_manager.name",
    "agent loop": "the data set's column agent_name, or else actor_rollout_ref.rollout.agent.default_agent_loop",
    "tool parser": "actor_rollout_ref.rollout.multi_turn.format",
}
_MODULES = "VERL_USE_EXTERNAL_MODULES"
_SILENT = ("policy loss", "agent loop", "tool parser")


def origins(name: str) -> Iterator[Origin]:
    """Every entry of verl's registries with this name, after the modules of VERL_USE_EXTERNAL_MODULES are loaded.

    Raises:
        ConfigError: verl, or a module that it is told to load, cannot be imported.
    """
    try:
        registries = _registries()
    except Exception as error:
        loaded = os.environ.get(_MODULES)
        told = f" with {_MODULES}={loaded}" if loaded else ""
        raise ConfigError(f"where: verl cannot be imported{told}: {type(error).__name__}: {error}") from error
    for kind, registry in registries.items():
        if name in registry:
            entry = registry[name]
            place = entry["_target_"] if isinstance(entry, Mapping) else place_of(entry)
            note = "whoever registers last wins, without a word" if kind in _SILENT else "a second one is an error"
            yield Origin(kind, name, str(place), f"{_KEYS[kind]}={name}", note)


def _registries() -> dict[str, Mapping[str, Any]]:
    import importlib

    from verl.experimental.agent_loop.agent_loop import _agent_loop_registry
    from verl.experimental.agent_loop.tool_parser import ToolParser
    from verl.experimental.reward_loop.reward_manager.registry import REWARD_MANAGER
    from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY, POLICY_LOSS_REGISTRY

    for module in filter(None, os.environ.get(_MODULES, "").split(",")):
        importlib.import_module(module.strip())
    return {
        "advantage estimator": ADV_ESTIMATOR_REGISTRY,
        "policy loss": POLICY_LOSS_REGISTRY,
        "reward manager": REWARD_MANAGER,
        "agent loop": _agent_loop_registry,
        "tool parser": ToolParser._registry,
    }
