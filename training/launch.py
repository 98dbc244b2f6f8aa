"""`rollbox train`: check a recipe, then become `python -m verl.trainer.main_ppo` with it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..serving.interrupt import run_to_its_end, sigterm_raises
from .preflight import preflight
from .recipe import Recipe, compose_recipe, find_recipe
from .verl_version import check_version

PLUGIN = "rollbox.training.plugin"
_ENDING_S = 60.0  # Ray ends a dozen processes
_CPU_ENVIRONMENT = {
    "VERL_PLATFORM": "cpu",
    "OMP_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "PASSIVE",  # idle threads would take the cores of the sandbox
    "GLOO_SOCKET_IFNAME": "lo",
}


def prepare(name: str, overrides: Sequence[str], *, check: bool = True) -> tuple[list[str], dict[str, str], list[str]]:
    """What `rollbox train` would run.

    Args:
        check: make the preflight checks.

    Returns:
        (command, environment, lines of the preflight).

    Raises:
        ConfigError: the recipe, an override, or something that the run needs is wrong.
    """
    check_version()
    recipe, config = compose_recipe(find_recipe(name, overrides))
    lines = run_to_its_end(preflight(config)) if check else []
    return command(recipe), environment(config), lines


def command(recipe: Recipe) -> list[str]:
    """verl's trainer with a recipe."""
    return [sys.executable, "-m", "verl.trainer.main_ppo", *recipe.hydra_arguments()]


def environment(config: Any) -> dict[str, str]:
    """The environment of a run: this one with the plugin, and on a CPU what verl needs there."""
    env = dict(os.environ)
    modules = [module for module in env.get("VERL_USE_EXTERNAL_MODULES", "").split(",") if module]
    env["VERL_USE_EXTERNAL_MODULES"] = ",".join(dict.fromkeys([*modules, PLUGIN]))
    env.setdefault("TOKENIZERS_PARALLELISM", "false")
    env.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if config.trainer.device == "cpu":
        env = {**_CPU_ENVIRONMENT, **env}
    return env


def become(argv: Sequence[str], env: dict[str, str]) -> None:
    """Replace this process: signals and the exit code are then the trainer's own."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(argv[0], list(argv), env)  # noqa: S606 - no shell is wanted


def run_trainer(argv: Sequence[str], env: Mapping[str, str], log: Path) -> int:
    """Run the trainer beside this process, with its output in `log`; to be called from the main thread.

    It ends with the caller, by Ctrl-C and SIGTERM too: killed outright, it would leave processes of Ray's behind, and
    left alone it would go on training.

    Returns:
        The exit code, negative for a signal.
    """
    with log.open("wb") as file, sigterm_raises():
        trainer = subprocess.Popen(argv, env=dict(env), stdout=file, stderr=subprocess.STDOUT)  # noqa: S603 - our own
        try:
            return trainer.wait()
        finally:
            _end(trainer)


def _end(trainer: subprocess.Popen[bytes]) -> None:
    trainer.terminate()  # does nothing to one that has ended
    try:
        trainer.wait(_ENDING_S)
    except BaseException as error:
        trainer.kill()
        trainer.wait()
        if not isinstance(error, subprocess.TimeoutExpired):
            raise
