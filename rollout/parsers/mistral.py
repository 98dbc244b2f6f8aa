"""Mistral's formats.

Since 2025: `[TOOL_CALLS]name[ARGS]{...}`; before: `[TOOL_CALLS][{"name": ..., "arguments": {...}}]`
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, ClassVar

from .json_call import add_call_object, add_repaired_arguments, incomplete, where
from .repair import read_object
from .scan import Scan, UndecidedError
from .tag_format import TagFormat

TAG, ARGS, CALL_ID = "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"
_SHAPE = "Write [TOOL_CALLS]<tool>[ARGS]{...}."
_NAME = re.compile(r"[A-Za-z_][\w.\-]*")
_ID = re.compile(r"\w*")


class MistralParser(TagFormat):
    name: ClassVar[str] = "mistral"
    openers = (TAG,)
    think = (("[THINK]", "[/THINK]"), ("<think>", "</think>"))
    dropped = ("</s>",)

    def read(self, scan: Scan, start: int, tag: str) -> int:
        position = scan.after_space(start + len(tag))
        if scan.at(position, "["):
            return self._read_list(scan, start, position)
        if scan.at(position, "{"):
            return self._read_object(scan, start, position)
        found = _until_end(scan, _NAME, position)
        if not found:
            scan.problem(start, f"The tool call at character {start} names no tool. {_SHAPE}")
            return position
        return self._read_arguments(scan, start, found, position + len(found))

    def render(self, name: str, arguments: Mapping[str, Any]) -> str:
        return f"{TAG}{name}{ARGS}{json.dumps(arguments, ensure_ascii=False)}"

    def _read_list(self, scan: Scan, start: int, position: int) -> int:
        found = scan.json(position)
        if found is None:
            return self._broken(scan, start, position, None)
        for value in found[0]:
            add_call_object(scan, value, position, _SHAPE)
        if not found[0]:
            scan.problem(start, f"The tool call at character {start} is empty. {_SHAPE}")
        return found[1]

    def _read_object(self, scan: Scan, start: int, position: int) -> int:
        found = scan.json(position)
        if found is None:
            return self._broken(scan, start, position, None)
        add_call_object(scan, found[0], position, _SHAPE)
        return found[1]

    def _read_arguments(self, scan: Scan, start: int, name: str, position: int) -> int:
        if scan.at(position, CALL_ID):
            position += len(CALL_ID)
            position += len(_until_end(scan, _ID, position))
        if scan.at(position, ARGS):
            position += len(ARGS)
        position = scan.after_space(position)
        found = scan.json(position) if scan.at(position, "{") else None
        if found is None:
            return self._broken(scan, start, position, name)
        scan.call(name, found[0])
        return found[1]

    def _broken(self, scan: Scan, start: int, position: int, name: str | None) -> int:
        """There is no closing tag: the broken call is taken to reach to the next one or the end of the turn."""
        following = scan.find(TAG, position)
        end = following if following >= 0 else len(scan.text)
        block = self.cleaned(scan.text[position:end])
        value = read_object(block.strip().removeprefix("[").removesuffix("]"), whole=False) if name is None else None
        if value is not None:
            add_call_object(scan, value, position, _SHAPE, repaired=True)
        elif following < 0 and block.count("{") > block.count("}"):
            return incomplete(scan, start, position, _SHAPE)
        elif name is None:
            scan.problem(start, f"The tool call at character {start} is not valid JSON{where(block)}. "
                                f"It was not run. {_SHAPE}")  # fmt: skip
        else:
            add_repaired_arguments(scan, name, start, block, _SHAPE, whole=False)
        return end


def _until_end(scan: Scan, pattern: re.Pattern[str], position: int) -> str:
    """What matches at `position`, once text has come that ends it."""
    match = pattern.match(scan.text, position)
    end = match.end() if match else position
    if end == len(scan.text) and not scan.final:
        raise UndecidedError
    return scan.text[position:end]
