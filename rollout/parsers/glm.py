"""GLM's format: `<tool_call>NAME\\n<arg_key>KEY</arg_key>\\n<arg_value>value</arg_value>\\n</tool_call>`.

Strings are written bare and everything else as JSON: the tool's schema says how to read them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from .argument_text import declared_types, read_value, write_value
from .bare_values import BareValues
from .json_call import incomplete
from .scan import Scan
from .tag_format import TagFormat

OPEN, CLOSE = "<tool_call>", "</tool_call>"
KEY, END_KEY = "<arg_key>", "</arg_key>"
VALUE, END_VALUE = "<arg_value>", "</arg_value>"
_SHAPE = "Write <tool_call>TOOL<arg_key>NAME</arg_key><arg_value>value</arg_value></tool_call>."
_MAX_NAME_CHARS = 256
_VALUES = BareValues(END_VALUE, (KEY, CLOSE), OPEN, CLOSE, CLOSE, _SHAPE)


class GlmParser(TagFormat):
    name: ClassVar[str] = "glm"
    openers = (OPEN,)
    dropped = ("<|observation|>",)

    def read(self, scan: Scan, start: int, tag: str) -> int:
        position = scan.after_space(start + len(tag))
        end = scan.find("<", position)
        name = scan.text[position:end].strip() if 0 <= end - position <= _MAX_NAME_CHARS else ""
        if not name or "\n" in name or "{" in name:
            return _VALUES.skip(scan, start, position, "names no tool")
        parameters = self.tool_schemas.get(name)
        arguments: dict[str, Any] = {}
        position = end
        while scan.at(position, KEY):
            end = scan.find(END_KEY, position)
            key = scan.text[position + len(KEY) : end].strip() if end >= 0 else ""
            value = scan.after_space(end + len(END_KEY)) if key else -1
            if not key or not scan.at(value, VALUE):
                return _VALUES.skip(scan, start, position, f"of {name!r} has an <arg_key> without <arg_value>")
            end = _VALUES.end(scan, value)
            if end < 0:
                return _VALUES.skip(scan, start, value, f"of {name!r} has an <arg_value> without its end")
            raw = scan.text[value + len(VALUE) : end]
            arguments[key] = read_value(raw, declared_types(parameters, key))
            position = scan.after_space(end + len(END_VALUE))
        if not scan.at(position, CLOSE):
            if not arguments or position < len(scan.text):
                return _VALUES.skip(scan, start, position, f"of {name!r} has text where <arg_key> is expected")
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
