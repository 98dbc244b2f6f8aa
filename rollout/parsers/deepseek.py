"""DeepSeek's formats, with its own tokens.

V3.1: `<｜tool▁call▁begin｜>name<｜tool▁sep｜>{...}<｜tool▁call▁end｜>`
V3, R1: `<｜tool▁call▁begin｜>function<｜tool▁sep｜>name\\n```json\\n{...}\\n```<｜tool▁call▁end｜>`
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar

from .json_call import add_repaired_arguments, incomplete
from .scan import Scan
from .tag_format import TagFormat

CALLS_OPEN, CALLS_CLOSE = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
OPEN, SEPARATOR, CLOSE = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"
_SHAPE = f"Write {OPEN}<tool>{SEPARATOR}{{...}}{CLOSE}."
_FENCE = "```"


class DeepSeekParser(TagFormat):
    name: ClassVar[str] = "deepseek"
    openers = (OPEN,)
    dropped = (CALLS_OPEN, CALLS_CLOSE, "<｜end▁of▁sentence｜>")

    def read(self, scan: Scan, start: int, tag: str) -> int:
        inside = start + len(tag)
        separator = scan.find(SEPARATOR, inside)
        brace = -1 if separator < 0 else scan.find("{", separator)
        if brace < 0:
            return incomplete(scan, start, inside, _SHAPE)
        kind = scan.text[inside:separator].strip()
        between = scan.text[separator + len(SEPARATOR) : brace]
        # V3 has the name behind the separator, where V3.1 has nothing.
        name = between.split(_FENCE)[0].strip() or kind
        if not name or "<" in name:
            close = scan.find(CLOSE, inside)
            scan.problem(start, f"The tool call at character {start} names no tool. {_SHAPE}")
            return close + len(CLOSE) if close >= 0 else inside
        return self._read_arguments(scan, name, start, brace)

    def render(self, name: str, arguments: Mapping[str, Any]) -> str:
        return f"{CALLS_OPEN}{OPEN}{name}{SEPARATOR}{json.dumps(arguments, ensure_ascii=False)}{CLOSE}{CALLS_CLOSE}"

    def _read_arguments(self, scan: Scan, name: str, start: int, position: int) -> int:
        found = scan.json(position)
        if found is not None:
            end = scan.after_space(found[1])
            if scan.at(end, _FENCE):
                end = scan.after_space(end + len(_FENCE))
            if scan.at(end, CLOSE) or end == len(scan.text):
                scan.call(name, found[0])
                return min(end + len(CLOSE), len(scan.text))
        close = scan.find(CLOSE, position)
        if close < 0:
            return incomplete(scan, start, position, _SHAPE)
        block = scan.text[position:close].rstrip().removesuffix(_FENCE)
        add_repaired_arguments(scan, name, start, block, _SHAPE)
        return close + len(CLOSE)
