"""Programs in the text, as ReTool and ToRL write them: `<code>` … `</code>`, with or without a fence, or a fence alone.

A fence alone is a call only when it says that it holds Python.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar

from .argument_text import read_text, without_line_breaks, write_text
from .bare_text import text_end
from .json_call import incomplete
from .scan import Scan
from .tag_format import TagFormat

OPEN, CLOSE = "<code>", "</code>"
FENCES, END_FENCE = ("```python\n", "```py\n"), "\n```"
_OPENING_FENCE = re.compile(r"\s*```(?:python|py)?[ \t]*\n")
_SHAPE = "Write <code>, the program, and </code>."


class ReToolParser(TagFormat):
    """The program goes to the tool `python`, or where there is none to the first one with a parameter `code`."""

    name: ClassVar[str] = "retool"
    openers = (OPEN, *FENCES)

    def read(self, scan: Scan, start: int, tag: str) -> int:
        body = start + len(tag)
        if tag == OPEN:
            end, close = text_end(scan, body, CLOSE, OPEN), CLOSE
            code = _without_fence(scan.text[body:end]) if end >= 0 else ""
        else:
            end, close = scan.find(END_FENCE, body - 1), END_FENCE
            code = scan.text[body:end]
        if end < 0:
            return incomplete(scan, start, body, _SHAPE)
        if code.strip():
            scan.call(self._tool(), {"code": read_text(code)})
        else:
            scan.problem(start, f"The program at character {start} is empty. {_SHAPE}")
        return end + len(close)

    def render(self, name: str, arguments: Mapping[str, Any]) -> str:
        """
        Raises:
            ValueError: the format has no way to write arguments other than `code`.
        """
        if set(arguments) != {"code"}:
            raise ValueError(f"the format {self.name!r} can only write the argument 'code'")
        return f"{OPEN}\n```python\n{write_text(arguments['code'], (CLOSE, OPEN))}\n```\n{CLOSE}"

    def count_drafts(self, text: str, start: int, end: int) -> int:
        """Programs between tags, else the fences: a fence within tags is the same program."""
        return text.count(OPEN, start, end) or super().count_drafts(text, start, end)

    def _tool(self) -> str:
        if "python" in self.tool_schemas:
            return "python"
        taking_code = (name for name, parameters in self.tool_schemas.items() if "code" in parameters.properties)
        return next(taking_code, "python")


def _without_fence(body: str) -> str:
    opening = _OPENING_FENCE.match(body)
    closing = body.rstrip()
    end = len(closing) - len("```")
    if opening is None or not closing.endswith(END_FENCE) or end < opening.end():
        return without_line_breaks(body)
    return closing[opening.end() : end].removesuffix("\n")
