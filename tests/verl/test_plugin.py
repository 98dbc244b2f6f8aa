"""The plugin as verl loads it, and that it refuses to be loaded in silence."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import entry_points

import pytest

from rollbox.schemas.errors import ConfigError
from rollbox.training.plugin import claim
from rollbox.training.verl_version import check_version

pytestmark = pytest.mark.verl


def _verl(code: str, modules: str = "rollbox.training.plugin") -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "VERL_USE_EXTERNAL_MODULES": modules, "VERL_USE_EXTERNAL_PLUGINS": "none"}
    return subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=100)


def test_verl_loads_it_from_the_environment() -> None:
    done = _verl(
        "import verl\n"
        "from verl.experimental.agent_loop.agent_loop import _agent_loop_registry as loops\n"
        "from verl.experimental.reward_loop.reward_manager import get_reward_manager_cls\n"
        "print(loops['rollbox_agent'], get_reward_manager_cls('rollbox').__name__)"
    )
    assert "rollbox.training.agent_loop.RollboxAgentLoop'} RollboxRewardManager" in done.stdout, done.stderr


def test_verl_finds_it_as_an_entry_point() -> None:
    assert [point.value for point in entry_points(group="verl.plugins", name="rollbox")] == ["rollbox.training.plugin"]


def test_a_taken_name_stops_verl() -> None:
    done = _verl(
        "import verl.experimental.agent_loop.agent_loop as loops\n"
        "loops._agent_loop_registry['rollbox_agent'] = {'_target_': 'other.Loop'}\n"
        "import rollbox.training.plugin",
        modules="",
    )
    assert done.returncode != 0
    assert "verl's agent loops: the name 'rollbox_agent' is taken by {'_target_': 'other.Loop'}" in done.stderr


def test_registering_twice_changes_nothing_and_another_object_is_refused() -> None:
    registry: dict[str, object] = {}
    claim(registry, "a", 1, "things")
    claim(registry, "a", 1, "things")
    with pytest.raises(ConfigError, match="verl's things: the name 'a' is taken by 1"):
        claim(registry, "a", 2, "things")


@pytest.mark.parametrize("version", ["0.7.1", "0.8.0", "0.10.0"])
def test_another_verl_is_refused_by_name(version: str) -> None:
    with pytest.raises(ConfigError, match=f"verl {version} is not supported"):
        check_version(version)
