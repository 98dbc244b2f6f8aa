"""Search-R1's format: `<search>query</search>`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from .argument_text import read_text, write_text
from .bare_text import single_text_parameter
from .json_call import incomplete
from .scan import Scan
from .tag_format import TagFormat

OPEN, CLOSE = "<search>", "</search>"
_SHAPE = "Write <search>, the query, and </search>."


class SearchR1Parser(TagFormat):
    """The query goes to the one required parameter of the tool `search`, by default `query_list`."""

    name: ClassVar[str] = "search_r1"
    openers = (OPEN,)

    def read(self, scan: Scan, start: int, tag: str) -> int:
        body = start + len(tag)
        close = scan.find(CLOSE, body)
        if close < 0:
            return incomplete(scan, start, body, _SHAPE)
        query = read_text(scan.text[body:close])
        if query.strip():
            scan.call("search", self._arguments(query))
        else:
            scan.problem(start, f"The query at character {start} is empty. {_SHAPE}")
        return close + len(CLOSE)

    def render(self, name: str, arguments: Mapping[str, Any]) -> str:
        """
        Raises:
            ValueError: the format can only write one query for the tool `search`.
        """
        values = list(arguments.values())
        query = values[0] if len(values) == 1 else None
        if isinstance(query, list) and len(query) == 1:
            query = query[0]
        if name != "search" or not isinstance(query, str):
            raise ValueError(f"the format {self.name!r} can only write one query for the tool 'search'")
        return f"{OPEN}{write_text(query, (CLOSE,))}{CLOSE}"

    def _arguments(self, query: str) -> dict[str, Any]:
        known = self.tool_schemas.get("search")
        parameter = single_text_parameter(known) or "query_list"
        declared = known.properties.get(parameter) if known is not None else None
        return {parameter: query if declared is not None and declared.type == "string" else [query]}
