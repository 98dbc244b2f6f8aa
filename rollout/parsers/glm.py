"""GLM's format: `<tool_call>NAME\\n<arg_key>KEY</arg_key>\\n<arg_value>value</arg_value>\\n</tool_call>`.

Strings are written bare and everything else as JSON: the tool's schema says how to read them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from .argument_text import declared_types, read_value, write_value
from .json_call import incomplete
from .scan import Scan
from .tag_format import TagFormat

OPEN, CLOSE = "<tool_call>", "</tool_call>"
KEY, END_KEY = "<arg_key>", "</arg_key>"
VALUE, END_VALUE = "<arg_value>", "</arg_value>"
_SHAPE = "Write <tool_call>TOOL<arg_key>NAME</arg_key><arg_value>value</arg_value></tool_call>."
_MAX_NAME_CHARS = 256


class GlmParser(TagFormat):
    name: ClassVar[str] = "glm"
    openers = (OPEN,)
    dropped = ("<|observation|>",)

    def read(self, scan: Scan, start: int, tag: str) -> int:
        position = scan.after_space(start + len(tag))
        end = scan.find("<", position)
        name = scan.text[position:end].strip() if 0 <= end - position <= _MAX_NAME_CHARS else ""
        if not name or "\n" in name or "{" in name:
            return self._skip(scan, start, position, "names no tool")
        parameters = self.tool_schemas.get(name)
        arguments: dict[str, Any] = {}
        position = end
        while scan.at(position, KEY):
            end = scan.find(END_KEY, position)
            key = scan.text[position + len(KEY) : end].strip() if end >= 0 else ""
            value = scan.after_space(end + len(END_KEY)) if key else -1
            if not key or not scan.at(value, VALUE):
                return self._skip(scan, start, position, f"of {name!r} has an <arg_key> without <arg_value>")
            end = self._value_end(scan, value)
            if end < 0:
                return self._skip(scan, start, value, f"of {name!r} has an <arg_value> without its end")
            raw = scan.text[value + len(VALUE) : end]
            arguments[key] = read_value(raw, declared_types(parameters, key))
            position = scan.after_space(end + len(END_VALUE))
        if not scan.at(position, CLOSE):
            if not arguments or position < len(scan.text):
                return self._skip(scan, start, position, f"of {name!r} has text where <arg_key> is expected")
            return incomplete(scan, start, position, _SHAPE)  # more arguments may have been meant to come
        scan.call(name, arguments)
        return position + len(CLOSE)

    def render(self, name: str, arguments: Mapping[str, Any]) -> str:
        closing = (END_VALUE, CLOSE)
        lines = "".join(
            f"{KEY}{key}{END_KEY}\n{VALUE}{write_value(value, closing)}{END_VALUE}\n"
            for key, value in arguments.items()
        )
        return f"{OPEN}{name}\n{lines}{CLOSE}"

    def _value_end(self, scan: Scan, position: int) -> int:
        """Position of the `</arg_value>` that ends a value: the first one that is followed by more of the call."""
        candidate = scan.find(END_VALUE, position)
        while candidate >= 0:
            following = scan.after_space(candidate + len(END_VALUE))
            if scan.at(following, KEY) or scan.at(following, CLOSE):
                break
            candidate = scan.find(END_VALUE, candidate + 1)
        if candidate < 0:
            return -1
        # A value that was never closed would swallow the next call.
        ended = scan.text.find(CLOSE, position, candidate)
        return -1 if ended >= 0 and scan.text.find(OPEN, ended, candidate) >= 0 else candidate

    def _skip(self, scan: Scan, start: int, position: int, what: str) -> int:
        close = scan.find(CLOSE, position)
        if close < 0:
            return incomplete(scan, start, position, _SHAPE)
        scan.problem(start, f"The tool call at character {start} {what}. It was not run. {_SHAPE}")
        return close + len(CLOSE)
