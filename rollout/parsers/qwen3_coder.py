"""The XML-like format of Qwen3-Coder and Qwen3.5.

<tool_call>\\n<function=NAME>\\n<parameter=KEY>\\nvalue\\n</parameter>\\n</function>\\n</tool_call>

Values have no quotes and no types: the tool's schema says how to read them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from .argument_text import declared_types, read_value, without_line_breaks, write_value
from .json_call import incomplete
from .scan import Scan
from .tag_format import TagFormat

OPEN, CLOSE = "<tool_call>", "</tool_call>"
FUNCTION, END_FUNCTION = "<function=", "</function>"
PARAMETER, END_PARAMETER = "<parameter=", "</parameter>"
_SHAPE = "Write <tool_call><function=TOOL><parameter=NAME>value</parameter></function></tool_call>."
_MAX_NAME_CHARS = 256


class Qwen3CoderParser(TagFormat):
    """The outer `<tool_call>` may be missing; models leave it out."""

    name: ClassVar[str] = "qwen3_coder"
    openers = (OPEN, FUNCTION)
    draft_marks = (FUNCTION,)

    def read(self, scan: Scan, start: int, tag: str) -> int:
        position = start
        if tag == OPEN:
            position = scan.after_space(start + len(OPEN))
            if not scan.at(position, FUNCTION):
                return self._skip(scan, start, position, "has no <function=...>")
        while scan.at(position, FUNCTION):
            end = self._read_function(scan, start, position + len(FUNCTION))
            if end < 0:
                return -end
            position = scan.after_space(end) if tag == OPEN else end
            if tag != OPEN:
                return position
        return position + len(CLOSE) if scan.at(position, CLOSE) else position

    def render(self, name: str, arguments: Mapping[str, Any]) -> str:
        closing = (END_PARAMETER, END_FUNCTION, CLOSE)
        lines = "".join(
            f"{PARAMETER}{key}>\n{write_value(value, closing)}\n{END_PARAMETER}\n" for key, value in arguments.items()
        )
        return f"{OPEN}\n{FUNCTION}{name}>\n{lines}{END_FUNCTION}\n{CLOSE}"

    def _read_function(self, scan: Scan, start: int, position: int) -> int:
        """Read one function; the position after it, or minus the position where to read on after a problem."""
        name, position = self._read_name(scan, position)
        if not name:
            return -self._skip(scan, start, position, "names no function")
        parameters = self.tool_schemas.get(name)
        arguments: dict[str, Any] = {}
        while True:
            position = scan.after_space(position)
            if scan.at(position, END_FUNCTION):
                scan.call(name, arguments)
                return position + len(END_FUNCTION)
            if scan.at(position, CLOSE):
                scan.call(name, arguments)  # </function> was forgotten, its parameters are whole
                return position
            if not scan.at(position, PARAMETER):
                return -self._skip(scan, start, position, f"of {name!r} has text where <parameter=...> is expected")
            key, position = self._read_name(scan, position + len(PARAMETER))
            end = self._value_end(scan, position) if key else -1
            if end < 0:
                return -self._skip(scan, start, position, f"of {name!r} has a parameter without </parameter>")
            raw = without_line_breaks(scan.text[position:end])
            arguments[key] = read_value(raw, declared_types(parameters, key))
            position = end + len(END_PARAMETER)

    def _read_name(self, scan: Scan, position: int) -> tuple[str, int]:
        end = scan.find(">", position)
        name = scan.text[position:end].strip().strip("\"'") if 0 <= end - position <= _MAX_NAME_CHARS else ""
        return ("", position) if "\n" in name or "<" in name else (name, end + 1)

    def _value_end(self, scan: Scan, position: int) -> int:
        """Position of the `</parameter>` that ends a value: the first one that is followed by more of the call."""
        candidate = scan.find(END_PARAMETER, position)
        while candidate >= 0:
            following = scan.after_space(candidate + len(END_PARAMETER))
            if any(scan.at(following, tag) for tag in (PARAMETER, END_FUNCTION, CLOSE)):
                break
            candidate = scan.find(END_PARAMETER, candidate + 1)
        if candidate < 0:
            return -1
        # A parameter that was never closed would swallow the next call.
        ended = scan.text.find(END_FUNCTION, position, candidate)
        return -1 if ended >= 0 and scan.text.find(FUNCTION, ended, candidate) >= 0 else candidate

    def _skip(self, scan: Scan, start: int, position: int, what: str) -> int:
        close = scan.find(CLOSE, position)
        if close < 0:
            return incomplete(scan, start, position, _SHAPE)
        scan.problem(start, f"The tool call at character {start} {what}. It was not run. {_SHAPE}")
        return close + len(CLOSE)
