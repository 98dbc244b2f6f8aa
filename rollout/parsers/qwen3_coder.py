"""The XML-like format of Qwen3-Coder and Qwen3.5.

<tool_call>\\n<function=NAME>\\n<parameter=KEY>\\nvalue\\n</parameter>\\n</function>\\n</tool_call>

Values have no quotes and no types: the tool's schema says how to read them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from .argument_text import declared_types, read_value, without_line_breaks, write_value
from .bare_values import BareValues
from .scan import Scan
from .tag_format import TagFormat

OPEN, CLOSE = "<tool_call>", "</tool_call>"
FUNCTION, END_FUNCTION = "<function=", "</function>"
PARAMETER, END_PARAMETER = "<parameter=", "</parameter>"
_SHAPE = "Write <tool_call><function=TOOL><parameter=NAME>value</parameter></function></tool_call>."
_MAX_NAME_CHARS = 256
_VALUES = BareValues(END_PARAMETER, (PARAMETER, END_FUNCTION, CLOSE), FUNCTION, END_FUNCTION, CLOSE, _SHAPE)


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
                return _VALUES.skip(scan, start, position, "has no <function=...>")
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
            return -_VALUES.skip(scan, start, position, "names no function")
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
                return -_VALUES.skip(scan, start, position, f"of {name!r} has text where <parameter=...> is expected")
            key, position = self._read_name(scan, position + len(PARAMETER))
            end = _VALUES.end(scan, position) if key else -1
            if end < 0:
                return -_VALUES.skip(scan, start, position, f"of {name!r} has a parameter without </parameter>")
            raw = without_line_breaks(scan.text[position:end])
            arguments[key] = read_value(raw, declared_types(parameters, key))
            position = end + len(END_PARAMETER)

    def _read_name(self, scan: Scan, position: int) -> tuple[str, int]:
        end = scan.find(">", position)
        name = scan.text[position:end].strip().strip("\"'") if 0 <= end - position <= _MAX_NAME_CHARS else ""
        return ("", position) if "\n" in name or "<" in name else (name, end + 1)
