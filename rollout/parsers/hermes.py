"""The Hermes format of Qwen2.5 and others: `<tool_call>\\n{"name": ..., "arguments": {...}}\\n</tool_call>`."""

from __future__ import annotations

import json
from typing import Any

from ...schemas.tool import ToolCall
from .base import ParsedTurn, ParseProblem
from .repair import read_object

OPEN, CLOSE = "<tool_call>", "</tool_call>"
THINK, END_THINK = "<think>", "</think>"
_SHAPE = 'Write {"name": "<tool>", "arguments": {...}} between <tool_call> and </tool_call>.'
MAX_PROBLEMS = 32
"""A turn with more unreadable calls is noise, and each of them costs a pass over the text for its line number."""
_decoder = json.JSONDecoder()


class HermesParser:
    name = "hermes"

    def parse(self, text: str) -> ParsedTurn:
        return _Scan(text).run()


class _Scan:
    """One pass from left to right.

    The end of a call is where its JSON ends, not where the next closing tag stands: strings may hold the tag.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.turn = ParsedTurn()
        self.content: list[str] = []
        self.last_close = text.rfind(CLOSE)
        self.last_end_think = text.rfind(END_THINK)

    def run(self) -> ParsedTurn:
        position = opening = thinking = 0
        while len(self.turn.problems) < MAX_PROBLEMS:
            # Searched again only once passed: a search to the end at each tag would be quadratic.
            opening = opening if opening > position else self._find(OPEN, position)
            thinking = thinking if thinking > position else self._find(THINK, position)
            if thinking < opening:
                position = self._skip_think(position, thinking)
            elif opening < len(self.text):
                self.content.append(self.text[position:opening])
                position = self._read_block(opening)
            else:
                break
        else:
            self._problem(position, f"Nothing was read after {MAX_PROBLEMS} unreadable tool calls.")
        self.content.append(self.text[position:])
        self.turn.content = "".join(self.content).strip()
        return self.turn

    def _find(self, tag: str, position: int) -> int:
        found = self.text.find(tag, position)
        return found if found >= 0 else len(self.text)

    def _skip_think(self, position: int, thinking: int) -> int:
        inside = thinking + len(THINK)
        closed = self.text.find(END_THINK, inside) if inside <= self.last_end_think else -1
        end = closed + len(END_THINK) if closed >= 0 else inside
        self.turn.draft_calls += self.text.count(OPEN, thinking, end)
        self.content.append(self.text[position:end])
        return end

    def _read_block(self, opening: int) -> int:
        """Read the objects of one block; return the position after it."""
        position = self._after_space(opening + len(OPEN))
        seen = 0
        while self.text.startswith("{", position) and len(self.turn.problems) < MAX_PROBLEMS:
            try:
                value, end = _decoder.raw_decode(self.text, position)
            except (ValueError, RecursionError):
                return self._repair_block(opening, position)
            self._add(value, position, repaired=False)
            seen += 1
            position = self._after_space(end)
        if len(self.turn.problems) >= MAX_PROBLEMS:
            return position
        if self.text.startswith(CLOSE, position):
            if not seen:
                self._problem(opening, f"The tool call at character {opening} is empty. {_SHAPE}")
            return position + len(CLOSE)
        if seen and (position == len(self.text) or self.text.startswith(OPEN, position)):
            return position  # the closing tag was forgotten, the object is whole
        return self._repair_block(opening, position)

    def _repair_block(self, opening: int, position: int) -> int:
        close = self.text.find(CLOSE, position) if position <= self.last_close else -1
        if close < 0:
            self._problem(opening, f"The tool call at character {opening} is incomplete: its arguments end before the "
                                   f"object is closed. It was not run. {_SHAPE}")  # fmt: skip
            following = self.text.find(OPEN, position)
            return following if following >= 0 else len(self.text)
        value = read_object(self.text[position:close])
        if value is None:
            self._problem(opening, f"The tool call at character {opening} is not valid JSON"
                                   f"{_where(self.text[position:close])}. It was not run. {_SHAPE}")  # fmt: skip
        else:
            self._add(value, position, repaired=True)
        return close + len(CLOSE)

    def _add(self, value: Any, position: int, repaired: bool) -> None:
        name = value.get("name") if isinstance(value, dict) else None
        arguments = value.get("arguments", value.get("parameters")) if isinstance(value, dict) else None
        if isinstance(arguments, str):
            arguments, repaired = read_object(arguments), True
        if not isinstance(name, str) or not name:
            self._problem(position, f"The tool call at character {position} has no 'name'. {_SHAPE}")
        elif not isinstance(arguments, dict):
            self._problem(position, f"The call of {name!r} at character {position} has no 'arguments' object. {_SHAPE}")
        else:
            self.turn.calls.append(ToolCall(name=name, arguments=arguments, repaired=repaired))

    def _problem(self, position: int, message: str) -> None:
        self.turn.problems.append(ParseProblem(position, message))

    def _after_space(self, position: int) -> int:
        while position < len(self.text) and self.text[position].isspace():
            position += 1
        return position


def _where(block: str) -> str:
    try:
        json.loads(block)
    except json.JSONDecodeError as error:
        return f" ({error.msg} at line {error.lineno} column {error.colno} of the object)"
    except (ValueError, RecursionError):
        pass
    return ""
