"""Find what a dotted name such as `package.module.ClassName` stands for."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from typing import Any

from ..schemas.errors import ConfigError
from ..schemas.validation import nearest


def find(name: str, where: str) -> Any:
    """Import the module and return its attribute.

    Raises:
        ConfigError: there is no such module or attribute, or importing it fails. The message starts with `where` and
            names the nearest one.
    """
    module_name, _, attribute = name.rpartition(".")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        advice = _nearest_module(module_name) if error.name and module_name.startswith(error.name) else ""
        raise ConfigError(f"{where}: cannot import {module_name!r}: {error}{advice}") from error
    except Exception as error:
        raise ConfigError(f"{where}: cannot import {module_name!r}: {type(error).__name__}: {error}") from error
    found = getattr(module, attribute, None)
    if found is None:
        public = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
        advice = nearest(attribute, public)
        raise ConfigError(f"{where}: {module_name!r} has no class or function {attribute!r}{advice}")
    return found


def _nearest_module(name: str) -> str:
    """Advice on the first part of a module's name that does not exist."""
    parts = name.split(".")
    if importlib.util.find_spec(parts[0]) is None:
        return "; for a module of your own put its folder on PYTHONPATH"
    for i in range(1, len(parts)):
        package = importlib.import_module(".".join(parts[:i]))
        siblings = [module.name for module in pkgutil.iter_modules(getattr(package, "__path__", []))]
        if parts[i] not in siblings:
            return nearest(parts[i], siblings)
    return ""
