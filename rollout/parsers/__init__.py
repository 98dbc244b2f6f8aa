"""Tool-call formats by name."""

from __future__ import annotations

from ...schemas.errors import ConfigError
from .base import ParsedTurn, ParseProblem, ToolCallParser
from .hermes import HermesParser

__all__ = ["ParseProblem", "ParsedTurn", "ToolCallParser", "get_parser"]

_PARSERS: dict[str, type[ToolCallParser]] = {HermesParser.name: HermesParser}


def get_parser(name: str) -> ToolCallParser:
    """The parser of a format.

    Raises:
        ConfigError: no such format.
    """
    if name not in _PARSERS:
        raise ConfigError(f"parser: no tool-call format {name!r}; there are: {', '.join(sorted(_PARSERS))}")
    return _PARSERS[name]()
