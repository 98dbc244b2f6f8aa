"""Calls as R1-style recipes write them: `<tool_call name="python">\\ncode\\n</tool_call>`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar

from ...schemas.surrogates import without_lone_surrogates
from .argument_text import read_text, without_line_breaks, write_text
from .bare_text import single_text_parameter, text_end
from .json_call import add_repaired_arguments, incomplete
from .scan import Scan
from .tag_format import TagFormat

OPEN, END_NAME, CLOSE = '<tool_call name="', '">', "</tool_call>"
_SHAPE = 'Write <tool_call name="TOOL">, the code, and </tool_call>.'
_MAX_NAME_CHARS = 256


class R1Parser(TagFormat):
    """The text goes to the tool's one required text parameter, without a schema to `code`.

    A tool that takes anything else is called with a JSON object in place of the text, one that takes a list by either.
    """

    name: ClassVar[str] = "r1"
    openers = (OPEN,)

    def read(self, scan: Scan, start: int, tag: str) -> int:
        inside = start + len(tag)
        end = scan.find(END_NAME, inside)
        name = scan.text[inside:end].strip() if 0 <= end - inside <= _MAX_NAME_CHARS else ""
        body = end + len(END_NAME) if name else inside
        close = text_end(scan, body, CLOSE, OPEN)
        if close < 0:
            return incomplete(scan, start, body, _SHAPE)
        text = without_line_breaks(scan.text[body:close])
        if not name or "\n" in name:
            scan.problem(start, f"The tool call at character {start} names no tool. {_SHAPE}")
        elif not text.strip():
            scan.problem(start, f"The tool call at character {start} is empty. {_SHAPE}")
        else:
            self._add(scan, name, start, text)
        return close + len(CLOSE)

    def render(self, name: str, arguments: Mapping[str, Any]) -> str:
        parameter, is_list = self._parameter(name)
        if parameter is None or is_list or set(arguments) != {parameter}:
            text = json.dumps(arguments, ensure_ascii=False).replace("</", "<\\/")
        else:
            text = write_text(arguments[parameter], (CLOSE, OPEN))
        return f"{OPEN}{name}{END_NAME}\n{text}\n{CLOSE}"

    def _parameter(self, name: str) -> tuple[str | None, bool]:
        """The parameter that the text goes to, and whether it takes a list of texts."""
        known = self.tool_schemas.get(name)
        parameter = "code" if known is None else single_text_parameter(known)
        return parameter, known is not None and parameter is not None and known.properties[parameter].type == "array"

    def _add(self, scan: Scan, name: str, start: int, text: str) -> None:
        parameter, is_list = self._parameter(name)
        if parameter is not None and not is_list:
            scan.call(name, {parameter: read_text(text)})
            return
        try:
            arguments = without_lone_surrogates(json.loads(text))
        except (ValueError, RecursionError):
            arguments = None
        if isinstance(arguments, dict):
            scan.call(name, arguments)
        elif parameter is not None and not text.lstrip().startswith(("{", "[")):
            scan.call(name, {parameter: [text]})
        else:
            add_repaired_arguments(scan, name, start, text, _SHAPE)
