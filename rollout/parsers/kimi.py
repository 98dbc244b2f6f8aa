"""Kimi K2's format: `<|tool_call_begin|>functions.name:0<|tool_call_argument_begin|>{...}<|tool_call_end|>`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, ClassVar

from .json_call import incomplete, read_arguments
from .scan import Scan
from .tag_format import TagFormat

SECTION_OPEN, SECTION_CLOSE = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
OPEN, ARGUMENTS, CLOSE = "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"
_SHAPE = f"Write {OPEN}functions.<tool>:0{ARGUMENTS}{{...}}{CLOSE}."
_ID = re.compile(r"\s*(?:functions\.)?(?P<name>[^\s:<]+)(?::\d+)?\s*")


class KimiParser(TagFormat):
    name: ClassVar[str] = "kimi"
    openers = (OPEN,)
    dropped = (SECTION_OPEN, SECTION_CLOSE, "<|im_end|>")

    def read(self, scan: Scan, start: int, tag: str) -> int:
        inside = start + len(tag)
        argument = scan.find(ARGUMENTS, inside)
        if argument < 0:
            return incomplete(scan, start, inside, _SHAPE)
        call_id = _ID.fullmatch(scan.text, inside, argument)
        if call_id is None:
            close = scan.find(CLOSE, inside)
            scan.problem(start, f"The tool call at character {start} names no tool. {_SHAPE}")
            return close + len(CLOSE) if close >= 0 else inside
        return read_arguments(scan, call_id["name"], start, argument + len(ARGUMENTS), CLOSE, _SHAPE)

    def render(self, name: str, arguments: Mapping[str, Any]) -> str:
        text = json.dumps(arguments, ensure_ascii=False)
        return f"{SECTION_OPEN}{OPEN}functions.{name}:0{ARGUMENTS}{text}{CLOSE}{SECTION_CLOSE}"
