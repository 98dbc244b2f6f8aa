"""TagFormat: the base of all formats. A subclass names its tags, and reads and writes one call."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ...schemas.tool import ToolSchema
from .base import ParsedTurn
from .scan import Scan
from .streaming import ScanStream


class TagFormat(ABC):
    """One format, for one set of tools.

    Args:
        tool_schemas: for formats that write arguments without their types. Without a schema an argument is read as
            JSON where it is a number, boolean, null, list or object, and as text otherwise.
        think_open: the chat template has opened `<think>` in the prompt already, so a turn begins inside it.

    Attributes:
        openers: tags that begin a call. think: (opening, closing) tags of reasoning, in which calls are drafts.
        draft_marks: of which each stands for one draft in reasoning; the openers where it is None.
        bare: what begins a call without any tag at the very start of a turn. dropped: tags that are no content.
    """

    name: ClassVar[str]
    openers: ClassVar[tuple[str, ...]]
    think: ClassVar[tuple[tuple[str, str], ...]] = (("<think>", "</think>"),)
    draft_marks: ClassVar[tuple[str, ...] | None] = None
    bare: ClassVar[str | None] = None
    dropped: ClassVar[tuple[str, ...]] = ()

    def __init__(self, tool_schemas: Sequence[ToolSchema] = (), *, think_open: bool = False) -> None:
        self.tool_schemas = {schema.function.name: schema.function.parameters for schema in tool_schemas}
        self.think_open = think_open and bool(self.think)
        self.think_tags = dict(self.think)
        self.all_tags = (*self.openers, *self.think_tags)
        # The longest first, where one tag begins another.
        by_length = sorted(self.all_tags, key=len, reverse=True)
        self.longest_tag = len(by_length[0])
        self.tags = re.compile("|".join(map(re.escape, by_length)))
        self._draft = re.compile("|".join(map(re.escape, self.draft_marks or self.openers)))
        self._dropped = re.compile("|".join(map(re.escape, self.dropped))) if self.dropped else None

    def parse(self, text: str, *, think_open: bool = False) -> ParsedTurn:
        scan = Scan(self, self.think_open or (think_open and bool(self.think)))
        scan.advance(text, final=True)
        return scan.turn

    def stream(self) -> ScanStream:
        return ScanStream(Scan(self, self.think_open))

    @abstractmethod
    def read(self, scan: Scan, start: int, tag: str) -> int:
        """Read the call that `tag` opens at `start`, noting calls and problems on `scan`.

        Returns:
            The position after it; -1 when the tag opens no call and is plain text.

        Raises:
            UndecidedError: the call may go on in text to come.
        """

    @abstractmethod
    def render(self, name: str, arguments: Mapping[str, Any]) -> str: ...

    def count_drafts(self, text: str, start: int, end: int) -> int:
        """How many calls seem to be sketched in `text[start:end]`."""
        return sum(1 for _ in self._draft.finditer(text, start, end))

    def cleaned(self, content: str) -> str:
        """Content without the tags that mean nothing."""
        return content if self._dropped is None else self._dropped.sub("", content)
