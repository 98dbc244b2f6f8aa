"""gpt-oss's harmony format: messages with a channel and, for calls, a recipient.

`<|channel|>commentary to=functions.name <|constrain|>json<|message|>{...}<|call|>`

Its built-in Python tool is called with the program itself in place of JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, ClassVar

from .json_call import incomplete, read_arguments
from .scan import Scan
from .tag_format import TagFormat

START, CHANNEL, MESSAGE, CONSTRAIN = "<|start|>", "<|channel|>", "<|message|>", "<|constrain|>"
END, CALL, RETURN = "<|end|>", "<|call|>", "<|return|>"
_RECIPIENT = re.compile(r"\bto=(?:functions\.)?([A-Za-z_][\w.\-]*)")
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")
_SHAPE = f"Write {CHANNEL}commentary to=functions.<tool> {CONSTRAIN}json{MESSAGE}{{...}}{CALL}."
_MAX_HEADER_CHARS = 512


class GptOssParser(TagFormat):
    """Text of the analysis channel is reasoning: calls sketched in it are drafts, and it is left out of the content."""

    name: ClassVar[str] = "gpt_oss"
    openers = (START, CHANNEL)
    think = ()
    dropped = (END, CALL, RETURN)

    def read(self, scan: Scan, start: int, tag: str) -> int:
        message = scan.find(MESSAGE, start)
        if message < 0 or message - start > _MAX_HEADER_CHARS:
            return -1
        header = scan.text[start:message]
        body = message + len(MESSAGE)
        recipient = _RECIPIENT.search(header)
        if recipient is None:
            return self._read_text(scan, header, body)
        name = recipient.group(1)
        position = scan.after_space(body)
        if name == "python" and not scan.at(position, "{"):
            return self._read_program(scan, name, start, body)
        return read_arguments(scan, name, start, body, CALL, _SHAPE)

    def render(self, name: str, arguments: Mapping[str, Any]) -> str:
        text = json.dumps(arguments, ensure_ascii=False)
        return f"{CHANNEL}commentary to=functions.{name} {CONSTRAIN}json{MESSAGE}{text}{CALL}"

    def _read_text(self, scan: Scan, header: str, body: int) -> int:
        channel = _CHANNEL.search(header)
        end = scan.find_first((END, RETURN, CALL, START), body)
        text = scan.text[body:end]
        if channel is not None and channel.group(1) == "analysis":
            scan.draft(len(_RECIPIENT.findall(text)))
        else:
            scan.say(text)
        return end

    def _read_program(self, scan: Scan, name: str, start: int, body: int) -> int:
        end = scan.find_first((CALL, END), body)
        code = scan.text[body:end]
        if not code.strip():
            return incomplete(scan, start, body, _SHAPE)
        scan.call(name, {"code": code})
        return end
