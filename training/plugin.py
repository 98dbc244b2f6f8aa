"""Registers what we add to verl. verl imports it in every process: `VERL_USE_EXTERNAL_MODULES=rollbox.training.plugin`.

verl overwrites a name that is taken in most of its registries without a word; here that is an error. verl loads the
entry point `verl.plugins` too, but hides what goes wrong there, so a failure is also written to stderr.
"""

from __future__ import annotations

import sys
from collections.abc import MutableMapping
from typing import Any

from ..schemas.errors import ConfigError
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
    _register_reward_manager()


def _register_agent_loop() -> None:
    from verl.experimental.agent_loop.agent_loop import _agent_loop_registry

    from .agent_loop import NAME, RollboxAgentLoop

    target = {"_target_": f"{RollboxAgentLoop.__module__}.{RollboxAgentLoop.__qualname__}"}
    claim(_agent_loop_registry, NAME, target, "agent loops")


def _register_reward_manager() -> None:
    from verl.experimental.reward_loop.reward_manager.registry import REWARD_MANAGER

    from .reward_manager import NAME, RollboxRewardManager

    claim(REWARD_MANAGER, NAME, RollboxRewardManager, "reward managers")


try:
    register()
except Exception as error:
    print(f"rollbox.training.plugin: {error}", file=sys.stderr, flush=True)  # noqa: T201
    raise
