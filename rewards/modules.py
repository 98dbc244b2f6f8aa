"""Load a user's modules of score functions, by file or by module name."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from ..schemas.errors import ConfigError, RollboxError
from .registry import load_built_in


def load_reward_modules(names: Iterable[str], beside: Path | None = None) -> list[ModuleType]:
    """Import modules whose functions register themselves with `@score`. One that is loaded is not loaded again.

    Args:
        names: module names, or files ending in `.py`.
        beside: the folder that relative files are looked for in; None takes the working directory.

    Raises:
        ConfigError: a module is missing or fails, or registers a name that is taken.
    """
    load_built_in()
    return [_from_file((beside or Path()) / name) if name.endswith(".py") else _by_name(name) for name in names]


def _by_name(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except RollboxError:
        raise
    except (Exception, SystemExit) as error:
        raise ConfigError(f"modules: {name!r} cannot be imported: {type(error).__name__}: {error}") from error


def _from_file(path: Path) -> ModuleType:
    path = path.resolve()
    name = f"rollbox_rewards_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ConfigError(f"modules: {path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # before it runs: dataclasses in it look their module up
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, ConfigError):
            raise ConfigError(f"modules: {path}: {error}") from error
        if isinstance(error, RollboxError) or not isinstance(error, Exception | SystemExit):
            raise  # SystemExit would end a check with the exit code that the module likes
        raise ConfigError(f"modules: {path} failed: {type(error).__name__}: {error}") from error
    return module
