"""Read a recipe: our YAML on top of verl's own trainer configuration, put together by Hydra."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..schemas.errors import ConfigError
from .reward_model_settings import HYBRID, OUR_FUNCTION

PACKAGE = Path(__file__).parents[1]
SHIPPED = PACKAGE / "recipes"
_MULTI_TURN = "actor_rollout_ref.rollout.multi_turn"
_TOOLS_KEY = f"{_MULTI_TURN}.tool_config_path"
_ALIASES = ("multi_turn.tools_config_file", f"{_MULTI_TURN}.tools_config_file")
_PATHS = (
    *("data.train_files", "data.val_files", "actor_rollout_ref.model.path", _TOOLS_KEY),
    *(
        "trainer.default_local_dir",
        "rollbox.records_dir",
        "rollbox.tools_config_file",
        "rollbox.rewards.file",
        "reward.custom_reward_function.path",
    ),
)
# Where verl's configuration is open, or ours.
_OPEN = (
    *("rollbox", "ray_kwargs.ray_init", "trainer.v1.sampler.sampler_kwargs", "reward.custom_reward_function"),
    *("actor_rollout_ref.rollout.engine_kwargs", "algorithm.rollbox"),
)


@dataclass(frozen=True, slots=True)
class Recipe:
    """A recipe file with overrides.

    Attributes:
        file: the YAML. overrides: in Hydra's grammar, in verl's own keys.
    """

    file: Path
    overrides: tuple[str, ...]

    def hydra_arguments(self) -> list[str]:
        """For `python -m verl.trainer.main_ppo`."""
        search = f"hydra.searchpath=[file://{SHIPPED}]"
        return [f"--config-dir={self.file.parent}", f"--config-name={self.file.stem}", search, *self.overrides]


def find_recipe(name: str, overrides: Sequence[str] = ()) -> Recipe:
    """A recipe by the path of its YAML, or by the name of one that ships with Rollbox.

    Args:
        overrides: Hydra's. `multi_turn.tools_config_file=X` is understood as verl's key for it.

    Raises:
        ConfigError: there is no such recipe.
    """
    given = Path(name)
    file = given if given.suffix in (".yaml", ".yml") else SHIPPED / f"{name}.yaml"
    if not file.is_file():
        shipped = sorted(path.stem for path in SHIPPED.glob("*.yaml") if not path.stem.startswith("rollbox_"))
        raise ConfigError(f"recipe: no file {file}; there are: {', '.join(shipped)}, or give the path of a YAML file")
    return Recipe(file.resolve(), tuple(_translated(override) for override in overrides))


def compose_recipe(recipe: Recipe) -> tuple[Recipe, Any]:
    """The whole configuration of a recipe, and the recipe with what its paths and aliases mean to verl.

    Relative paths are taken from the working directory, or from Rollbox where they name what it ships, and made
    absolute: the processes of a run may have another working directory.

    Raises:
        ConfigError: Hydra cannot put it together, or a key is not verl's.
    """
    config = _compose(recipe)
    extra: list[str] = []
    if (alias := _select(config, _ALIASES[1])) is not None:
        extra += [f"~{_ALIASES[1]}", f"{_TOOLS_KEY}={alias}"]
        recipe = Recipe(recipe.file, (*recipe.overrides, *extra))
        config = _compose(recipe)
    if config.reward.reward_manager.name == HYBRID and config.reward.custom_reward_function.path is None:
        # Without a function verl asks no manager where there is a reward model.
        recipe = Recipe(recipe.file, (*recipe.overrides, f"reward.custom_reward_function.path={OUR_FUNCTION}"))
        config = _compose(recipe)
    absolute = [f"{key}={_quoted(path)}" for key in _PATHS if (path := _absolute(_select(config, key))) is not None]
    recipe = Recipe(recipe.file, (*recipe.overrides, *absolute))
    config = _compose(recipe)
    unknown = unknown_keys(config)
    if unknown:
        raise ConfigError(f"{recipe.file}: verl has no key {unknown[0]!r}" + _more(unknown))
    return recipe, config


def unknown_keys(config: Any) -> list[str]:
    """Keys that verl does not know. Hydra takes any key from a YAML file, and verl ignores many in silence."""
    from omegaconf import OmegaConf

    base = OmegaConf.to_container(_compose(None), resolve=False)
    return _unknown(OmegaConf.to_container(config, resolve=False), base, "")


def _unknown(given: Any, known: Any, where: str) -> list[str]:
    if where in _OPEN or not isinstance(given, dict) or not isinstance(known, dict) or (where and not known):
        return []
    fields = _dataclass_fields(known.get("_target_"))
    found: list[str] = []
    for key, value in given.items():
        path = f"{where}.{key}" if where else str(key)
        if key in known:
            found += _unknown(value, known[key], path)
        elif key not in fields and path not in _OPEN:
            found.append(path)
    return found


def _dataclass_fields(target: str | None) -> set[str]:
    """Fields of the class that verl makes of a section; it takes those that its YAML leaves out too."""
    if not target:
        return set()
    module, _, name = target.rpartition(".")
    return {field.name for field in dataclasses.fields(getattr(importlib.import_module(module), name))}


def _compose(recipe: Recipe | None) -> Any:
    """verl's configuration alone, or with a recipe on top."""
    try:
        import verl
        from hydra import compose, initialize_config_dir
        from hydra.errors import HydraException
        from omegaconf.errors import OmegaConfBaseException
    except ImportError as error:
        raise ConfigError(f"training needs verl's environment: {error}; install verl and hydra-core") from error
    verl_config = Path(verl.__file__).parent / "trainer" / "config"
    directory, name, overrides = verl_config, "ppo_trainer", []
    if recipe is not None:
        directory, name = recipe.file.parent, recipe.file.stem
        overrides = [f"hydra.searchpath=[file://{SHIPPED},file://{verl_config}]", *recipe.overrides]
    try:
        # Hydra warns on stderr of what `main_ppo` says again.
        with (
            contextlib.redirect_stderr(io.StringIO()),
            initialize_config_dir(config_dir=str(directory), version_base=None),
        ):
            return compose(name, overrides=overrides)
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(f"{directory / name}.yaml: {error}") from error


def _translated(override: str) -> str:
    key, equals, value = override.partition("=")
    return f"{_TOOLS_KEY}={value}" if equals and key.lstrip("+") in _ALIASES else override


def _select(config: Any, key: str) -> Any:
    from omegaconf import OmegaConf

    return OmegaConf.select(config, key, throw_on_missing=False)


def _absolute(value: Any) -> str | None:
    """The absolute form of a relative path; None to leave the value alone, as the id of a model on a hub."""
    if not isinstance(value, str) or "://" in value or value.startswith(("/", "~")):
        return None
    for base in (Path.cwd(), PACKAGE):
        if (base / value).exists():
            return str(base / value)
    return str(Path.cwd() / value) if value.startswith(("runs/", "./")) or value.endswith(".parquet") else None


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _more(names: Sequence[str]) -> str:
    return f" (and {len(names) - 1} more: {', '.join(names[1:4])})" if len(names) > 1 else ""
