"""Llama 3's JSON format: `{"name": ..., "parameters": {...}}`, alone or after `<|python_tag|>`; `;` parts several."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar

from .json_call import add_call_object, incomplete, where
from .repair import read_object
from .scan import Scan
from .tag_format import TagFormat

TAG = "<|python_tag|>"
_SHAPE = 'Write {"name": "<tool>", "parameters": {...}} and nothing else.'


class Llama3JsonParser(TagFormat):
    """Without the tag, a call must be the first thing in the turn; JSON further on is text."""

    name: ClassVar[str] = "llama3_json"
    openers = (TAG,)
    bare = "{"
    draft_marks = ('{"name"',)
    dropped = ("<|eom_id|>", "<|eot_id|>", "<|begin_of_text|>")

    def read(self, scan: Scan, start: int, tag: str) -> int:
        tagged = tag == TAG
        position = scan.after_space(start + len(TAG)) if tagged else start
        if not scan.at(position, "{"):
            scan.problem(start, f"The tool call at character {start} is not a JSON object. {_SHAPE}")
            return position
        while True:
            found = scan.json(position)
            if found is None:
                return self._repair(scan, position, tagged)
            if not tagged and not _is_call(found[0]):
                return -1
            add_call_object(scan, found[0], position, _SHAPE)
            end = scan.after_space(found[1])
            following = scan.after_space(end + 1) if scan.at(end, ";") else end
            if not scan.at(following, "{"):
                return following
            position, tagged = following, True

    def render(self, name: str, arguments: Mapping[str, Any]) -> str:
        return json.dumps({"name": name, "parameters": arguments}, ensure_ascii=False)

    def _repair(self, scan: Scan, position: int, tagged: bool) -> int:
        """There is no closing tag: the broken object is taken to reach to the next tag or the end of the turn."""
        following = scan.find(TAG, position)
        end = following if following >= 0 else len(scan.text)
        block = self.cleaned(scan.text[position:end])
        value = read_object(block, whole=False)
        if not tagged and '"name"' not in block[:200]:
            return -1
        if value is not None:
            add_call_object(scan, value, position, _SHAPE, repaired=True)
            return end
        if following < 0 and block.count("{") > block.count("}"):
            return incomplete(scan, position, position, _SHAPE)
        scan.problem(position, f"The tool call at character {position} is not valid JSON{where(block)}. "
                               f"It was not run. {_SHAPE}")  # fmt: skip
        return end


def _is_call(value: Any) -> bool:
    return isinstance(value, dict) and "name" in value and ("parameters" in value or "arguments" in value)
