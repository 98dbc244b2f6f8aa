"""The Hermes format of Qwen2.5 and others: `<tool_call>\\n{"name": ..., "arguments": {...}}\\n</tool_call>`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar

from .json_call import add_call_object, incomplete, where
from .repair import read_object
from .scan import Scan
from .tag_format import TagFormat

OPEN, CLOSE = "<tool_call>", "</tool_call>"
_SHAPE = 'Write {"name": "<tool>", "arguments": {...}} between <tool_call> and </tool_call>.'


class HermesParser(TagFormat):
    """The end of a call is where its JSON ends, not where the next closing tag stands: strings may hold the tag."""

    name: ClassVar[str] = "hermes"
    openers = (OPEN,)

    def read(self, scan: Scan, start: int, tag: str) -> int:
        """Read the objects of one block; models write several in one."""
        position = scan.after_space(start + len(tag))
        seen = 0
        while scan.at(position, "{"):
            found = scan.json(position)
            if found is None:
                return self._repair(scan, start, position)
            add_call_object(scan, found[0], position, _SHAPE)
            seen += 1
            position = scan.after_space(found[1])
        if scan.at(position, CLOSE):
            if not seen:
                scan.problem(start, f"The tool call at character {start} is empty. {_SHAPE}")
            return position + len(CLOSE)
        if seen and (position == len(scan.text) or scan.at(position, OPEN)):
            return position  # the closing tag was forgotten, the object is whole
        return self._repair(scan, start, position)

    def render(self, name: str, arguments: Mapping[str, Any]) -> str:
        text = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
        return f"{OPEN}\n{text}\n{CLOSE}"

    def _repair(self, scan: Scan, start: int, position: int) -> int:
        close = scan.find(CLOSE, position)
        if close < 0:
            return incomplete(scan, start, position, _SHAPE)
        block = scan.text[position:close]
        value = read_object(block)
        if value is None:
            scan.problem(start, f"The tool call at character {start} is not valid JSON{where(block)}. "
                                f"It was not run. {_SHAPE}")  # fmt: skip
        else:
            add_call_object(scan, value, position, _SHAPE, repaired=True)
        return close + len(CLOSE)
