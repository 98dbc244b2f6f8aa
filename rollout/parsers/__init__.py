"""Tool-call formats by name."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from ...schemas.errors import ConfigError
from ...schemas.tool import ToolSchema
from .base import ParsedTurn, ParseProblem, StreamingTurn, ToolCallParser
from .deepseek import DeepSeekParser
from .glm import GlmParser
from .gpt_oss import GptOssParser
from .hermes import HermesParser
from .kimi import KimiParser
from .llama3_json import Llama3JsonParser
from .mistral import MistralParser
from .qwen3_coder import Qwen3CoderParser
from .r1 import R1Parser
from .retool import ReToolParser
from .search_r1 import SearchR1Parser
from .tag_format import TagFormat

__all__ = ["PARSERS", "ParseProblem", "ParsedTurn", "StreamingTurn", "ToolCallParser", "get_parser"]

PARSERS: dict[str, type[TagFormat]] = {
    form.name: form
    for form in (
        DeepSeekParser,
        GlmParser,
        GptOssParser,
        HermesParser,
        KimiParser,
        Llama3JsonParser,
        MistralParser,
        Qwen3CoderParser,
        R1Parser,
        ReToolParser,
        SearchR1Parser,
    )
}


def get_parser(name: str, tool_schemas: Sequence[ToolSchema] = (), *, think_open: bool = False) -> ToolCallParser:
    """The parser of a format.

    Args:
        tool_schemas: of the tools that may be called; formats that write arguments without types read them by these.
        think_open: the chat template opens `<think>` in the prompt, so that turns begin inside it.

    Raises:
        ConfigError: no such format.
    """
    if name not in PARSERS:
        near = difflib.get_close_matches(name, PARSERS, n=1)
        advice = f"; did you mean {near[0]!r}?" if near else ""
        raise ConfigError(f"parser: no tool-call format {name!r}{advice} There are: {', '.join(sorted(PARSERS))}")
    return PARSERS[name](tool_schemas, think_open=think_open)
