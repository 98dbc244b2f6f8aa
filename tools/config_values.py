"""Values of the tools YAML that depend on where it is read: environment variables and relative paths."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import BaseModel

from ..schemas.errors import ConfigError

_VARIABLE = re.compile(
    r"\$\$\{"  # an escaped `${`
    r"|\$\{(?:oc\.env:)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?:(?::-|,\s*)(?P<default>[^}]*))?\}"
    r"|(?P<broken>\$\{[^}]*\}?)"
)


@dataclass(frozen=True, slots=True)
class FromConfigFile:
    """Marks a field that holds a path: a relative one counts from the folder of the YAML file."""


ConfigPath = Annotated[str, FromConfigFile()]


def interpolated(value: Any, where: str) -> Any:
    """`value` with `${NAME}`, `${NAME:-default}` and OmegaConf's `${oc.env:NAME,default}` read from the environment.

    The last is what verl's loader understands too. `$${` stands for `${`. Strings within lists and mappings are read
    as well; keys are not.

    Raises:
        ConfigError: a variable is not set and has no default; the message names it.
    """
    if isinstance(value, str):
        return _VARIABLE.sub(lambda match: _replacement(match, where), value) if "${" in value else value
    if isinstance(value, Mapping):
        return {key: interpolated(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, list):
        return [interpolated(item, f"{where}.{i}") for i, item in enumerate(value)]
    return value


def anchored(config: dict[str, Any], model: type[BaseModel], folder: Path) -> dict[str, Any]:
    """`config` with the paths among `model`'s fields made absolute, relative ones from `folder`; `~` is the home."""
    changed = dict(config)
    for name, field in model.model_fields.items():
        value = config.get(name)
        marked = any(isinstance(mark, FromConfigFile) for mark in field.metadata)
        if isinstance(value, str) and (marked or ConfigPath in get_args(field.annotation)):
            changed[name] = str(folder / Path(value).expanduser())
    return changed


def _replacement(match: re.Match[str], where: str) -> str:
    if match["broken"] is not None:
        raise ConfigError(f"{where}: {match['broken']!r} is no variable; write ${{NAME}}, or $${{ for the text itself")
    if match["name"] is None:
        return "${"
    value = os.environ.get(match["name"], match["default"])
    if value is None:
        raise ConfigError(f"{where}: environment variable {match['name']!r} is not set")
    return value
