"""Registers what we add to verl. verl imports it in every process: `VERL_USE_EXTERNAL_MODULES=rollbox.training.plugin`.

verl overwrites a name that is taken in most of its registries without a word; here that is an error. verl loads the
entry point `verl.plugins` too, but hides what goes wrong there, so a failure is also written to stderr.
"""

from __future__ import annotations

import sys
from collections.abc import MutableMapping
from typing import Any

from ..schemas.errors import ConfigError
from .algorithms.register import register_algorithms
from .settings import AGENT_LOOP
from .verl_version import check_version


def claim(registry: MutableMapping[Any, Any], name: Any, ours: Any, where: str) -> None:
    """Enter `ours` under `name`; entering it again changes nothing.

    Raises:
        ConfigError: something else has the name.
    """
    taken = registry.get(name)
    if taken is not None and taken != ours:
        raise ConfigError(f"verl's {where}: the name {name!r} is taken by {taken!r}; is another plugin loaded?")
    registry[name] = ours


def register() -> None:
    """Register everything.

    Raises:
        ConfigError: this verl is not supported, or a name is taken.
    """
    check_version()
    _register_agent_loop()
    _register_tool_parsers()
    _register_reward_managers()
    register_algorithms()
    _register_cpu()


def _register_agent_loop() -> None:
    from verl.experimental.agent_loop.agent_loop import _agent_loop_registry

    # By name: the class is imported where trajectories are run, and nowhere else.
    claim(_agent_loop_registry, AGENT_LOOP, {"_target_": f"{__package__}.agent_loop.RollboxAgentLoop"}, "agent loops")


def _register_tool_parsers() -> None:
    from verl.experimental.agent_loop.tool_parser import ToolParser

    from ..rollout.parsers import PARSERS

    for name in PARSERS:
        taken = ToolParser._registry.get(f"rollbox_{name}")
        if taken is not None and taken.__module__ != f"{__package__}.tool_parsers":
            raise ConfigError(f"verl's tool parsers: the name 'rollbox_{name}' is taken by {taken!r}")
    from . import tool_parsers  # noqa: F401 - importing it registers them


def _register_reward_managers() -> None:
    from verl.experimental.reward_loop.reward_manager.registry import REWARD_MANAGER

    from . import hybrid_reward, reward_manager, reward_model_settings

    claim(REWARD_MANAGER, reward_model_settings.ROLLBOX, reward_manager.RollboxRewardManager, "reward managers")
    claim(REWARD_MANAGER, reward_model_settings.HYBRID, hybrid_reward.HybridRewardManager, "reward managers")


def _register_cpu() -> None:
    from verl.plugin.platform import PlatformRegistry
    from verl.workers.rollout.base import _ROLLOUT_REGISTRY
    from verl.workers.rollout.replica import RolloutReplicaRegistry

    from .cpu import names, platform

    claim(PlatformRegistry._platforms, platform.NAME, platform.CpuPlatform, "platforms")
    claim(RolloutReplicaRegistry._registry, names.ROLLOUT, names.load_replica, "rollout replicas")
    adapter = f"{names.__package__}.weights.CpuServerAdapter"
    claim(_ROLLOUT_REGISTRY, (names.ROLLOUT, "async"), adapter, "rollouts")
    if platform.is_chosen():
        platform.prepare_process()


try:
    register()
except Exception as error:
    print(f"rollbox.training.plugin: {error}", file=sys.stderr, flush=True)  # noqa: T201
    raise
