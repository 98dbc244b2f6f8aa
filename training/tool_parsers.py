"""Our tool-call formats as verl `ToolParser`s: `multi_turn.format=rollbox_hermes` and so on.

Importing this module registers them, so verl has to import it in every worker; the plugin does.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any, ClassVar

from verl.experimental.agent_loop.tool_parser import FunctionCall, ToolParser

from ..rollout.parsers import PARSERS, ParsedTurn, get_parser
from ..schemas.tool import ToolSchema

PREFIX = "rollbox_"


class RollboxToolParser(ToolParser):
    """Reads turns as `rollout.parsers` does.

    verl knows only calls. A call that cannot be read is passed on as a call whose name is the message for the model:
    verl answers a name that it does not know with an error that quotes it, where a dropped call would end the
    trajectory without a word.
    """

    format_name: ClassVar[str]

    def __init__(self, tokenizer: Any) -> None:
        super().__init__(tokenizer)
        self._end_tokens = {tokenizer.eos_token, tokenizer.pad_token} - {None}

    async def extract_tool_calls(
        self, responses_ids: list[int], tools: Sequence[Any] | None = None
    ) -> tuple[str, list[FunctionCall]]:
        """The content and the calls of one turn.

        Args:
            responses_ids: [T] ids of the turn.
            tools: verl's schemas of the tools that may be called.
        """
        # Decoding a long turn takes milliseconds, which the event loop of a worker has no time for.
        turn = await asyncio.to_thread(self._parse, responses_ids, tools or ())
        calls = [
            FunctionCall(name=call.name, arguments=json.dumps(call.arguments, ensure_ascii=False))
            for call in turn.calls
        ]
        calls += [FunctionCall(name=problem.message, arguments="{}") for problem in turn.problems]
        return turn.content, calls

    def _parse(self, ids: list[int], tools: Sequence[Any]) -> ParsedTurn:
        # Special tokens stay: most formats mark their calls with them.
        text: str = self.tokenizer.decode(ids, skip_special_tokens=False)
        for token in self._end_tokens:
            text = text.replace(token, "")
        schemas = [
            ToolSchema.model_validate(tool.model_dump(exclude_unset=True, exclude_none=True))
            if not isinstance(tool, ToolSchema)
            else tool
            for tool in tools
        ]
        return get_parser(self.format_name, schemas).parse(text)


def register() -> list[str]:
    """Make every format known to verl; the names under which it now knows them."""
    names = []
    for format_name in PARSERS:
        parser = type(f"Rollbox{PARSERS[format_name].__name__}", (RollboxToolParser,), {"format_name": format_name})
        ToolParser.register(PREFIX + format_name)(parser)
        names.append(PREFIX + format_name)
    return names


registered = register()
"""The names under which verl knows our formats."""
