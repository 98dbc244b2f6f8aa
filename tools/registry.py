"""Load tools from the YAML that the trainer names (`multi_turn.tools_config_file`, in verl `tool_config_path`)."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable
from pathlib import Path

import yaml

from ..schemas.errors import ConfigError
from ..schemas.tools_config import ToolEntry, ToolsConfig
from ..schemas.validation import validated
from .base import BaseTool


def load_tools(path: str | Path) -> dict[str, BaseTool]:
    """Build every tool of a YAML file, by name, in the file's order.

    Raises:
        ConfigError: the file cannot be read, an entry is wrong, a class is missing or no tool, or two tools share
            a name (verl lets the last win in silence). The message names file, entry and field.
    """
    file = Path(path)
    try:
        data = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{file}: not YAML: {error}") from error
    if not isinstance(data, dict):
        raise ConfigError(f"{file}: must hold a mapping with the key 'tools' (got {type(data).__name__})")
    config = validated(ToolsConfig, data, str(file))
    return by_name((_build(entry, f"{file}: tools.{i}") for i, entry in enumerate(config.tools)), str(file))


def by_name(tools: Iterable[BaseTool], where: str) -> dict[str, BaseTool]:
    """Index tools by name.

    Raises:
        ConfigError: two of them share a name.
    """
    found: dict[str, BaseTool] = {}
    for tool in tools:
        if tool.name in found:
            raise ConfigError(
                f"{where}: two tools are named {tool.name!r}: {type(found[tool.name]).__name__} and "
                f"{type(tool).__name__}; give one of them another tool_schema.function.name"
            )
        found[tool.name] = tool
    return found


def _build(entry: ToolEntry, where: str) -> BaseTool:
    tool_class = _find_class(entry.class_name, f"{where}.class_name")
    try:
        return tool_class(config=entry.config, tool_schema=entry.tool_schema)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error


def _find_class(class_name: str, where: str) -> type[BaseTool]:
    module_name, _, attribute = class_name.rpartition(".")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise ConfigError(f"{where}: cannot import {module_name!r}: {error}") from error
    found = getattr(module, attribute, None)
    if found is None:
        classes = [name for name, value in vars(module).items() if isinstance(value, type)]
        near = difflib.get_close_matches(attribute, classes, n=1)
        advice = f"; did you mean {near[0]!r}?" if near else ""
        raise ConfigError(f"{where}: {module_name!r} has no class {attribute!r}{advice}")
    if not (isinstance(found, type) and issubclass(found, BaseTool)):
        raise ConfigError(f"{where}: {class_name!r} is not a subclass of rollbox.tools.base.BaseTool")
    return found
