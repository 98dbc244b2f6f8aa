"""Load tools from the YAML that the trainer names (`multi_turn.tools_config_file`, in verl `tool_config_path`)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import FunctionType

import yaml

from ..schemas.errors import ConfigError
from ..schemas.strict_yaml import load_yaml
from ..schemas.tools_config import ToolEntry, ToolsConfig
from ..schemas.validation import validated
from .base import BaseTool
from .config_values import anchored, interpolated
from .dotted_name import find
from .function_tool import FunctionTool


def load_tools(path: str | Path) -> dict[str, BaseTool]:
    """Build every tool of a YAML file, by name, in the file's order.

    Only an entry of type `mcp` does any I/O: its server is asked for its tools.

    Raises:
        ConfigError: the file cannot be read, an entry is wrong, a class is missing or no tool, an environment
            variable is not set, or two tools share a name (verl lets the last win in silence). The message names
            file, entry and field.
    """
    file = Path(path)
    try:
        data = load_yaml(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: not YAML: {error}") from error
    if not isinstance(data, dict):
        raise ConfigError(f"{file}: must hold a mapping with the key 'tools' (got {type(data).__name__})")
    config = validated(ToolsConfig, data, str(file))
    folder = file.resolve().parent
    built = (tool for i, entry in enumerate(config.tools) for tool in _build(entry, f"{file}: tools.{i}", folder))
    return by_name(built, str(file))


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


def _build(entry: ToolEntry, where: str, folder: Path) -> list[BaseTool]:
    config = interpolated(entry.config, f"{where}.config")
    if entry.kind == "mcp":
        return _mcp_tools(entry, config, where, folder)
    found = find(entry.class_name, f"{where}.class_name")
    if entry.kind == "function" or isinstance(found, FunctionTool | FunctionType):
        return [_function_tool(entry, config, found, where)]
    if not (isinstance(found, type) and issubclass(found, BaseTool)):
        raise ConfigError(
            f"{where}.class_name: {entry.class_name!r} is not a subclass of rollbox.tools.base.BaseTool "
            "(a plain function needs config.type: function)"
        )
    try:
        return [found(config=anchored(config, found.config_model, folder), tool_schema=entry.tool_schema)]
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error
    except Exception as error:
        raise ConfigError(f"{where}: {entry.class_name} cannot be built: {type(error).__name__}: {error}") from error


def _function_tool(entry: ToolEntry, config: dict[str, object], found: object, where: str) -> BaseTool:
    if not callable(found):
        raise ConfigError(f"{where}.class_name: {entry.class_name!r} is no function")
    unknown = sorted(set(config) - {"type", "max_concurrency"})
    if unknown:
        raise ConfigError(f"{where}.config: {', '.join(unknown)}: a function takes type and max_concurrency only")
    limit = config.get("max_concurrency")
    try:
        if not isinstance(found, FunctionTool):
            return FunctionTool.of(found, tool_schema=entry.tool_schema, max_concurrency=limit)
        if entry.tool_schema is None and limit is None:
            return found
        schema = entry.tool_schema or found.tool_schema
        return FunctionTool.of(found.function, tool_schema=schema, max_concurrency=limit)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error


def _mcp_tools(entry: ToolEntry, config: dict[str, object], where: str, folder: Path) -> list[BaseTool]:
    if entry.class_name not in ("", "rollbox.tools.mcp.McpTool"):
        raise ConfigError(f"{where}.class_name: leave it out for an MCP server, or write rollbox.tools.mcp.McpTool")
    if entry.tool_schema is not None:
        raise ConfigError(f"{where}.tool_schema: an MCP server brings the schemas of its tools; leave it out")
    try:
        from .mcp import load_mcp_tools
    except ImportError as error:
        raise ConfigError(f"{where}: {error}; install it with: pip install 'rollbox[mcp]'") from error
    try:
        return list(load_mcp_tools(config, folder))
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error
