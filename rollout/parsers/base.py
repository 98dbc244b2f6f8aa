"""What a parser takes and returns, whatever the format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from ...schemas.tool import ToolCall


@dataclass(frozen=True, slots=True)
class ParseProblem:
    """A stretch that was meant as a call and cannot be read. `message` is what the model is told.

    Attributes:
        position: offset in characters from the start of the turn.
    """

    position: int
    message: str


@dataclass(slots=True)
class ParsedTurn:
    """A model's turn, taken apart.

    Attributes:
        calls: in the order in which they were written.
        content: the text outside the calls.
        problems: calls that could not be read.
        draft_calls: calls inside a closed `<think>`, which are not to be run.
    """

    calls: list[ToolCall] = field(default_factory=list)
    content: str = ""
    problems: list[ParseProblem] = field(default_factory=list)
    draft_calls: int = 0


class StreamingTurn(Protocol):
    """Reads a turn while it is written. However the text is split, the outcome is that of `ToolCallParser.parse`."""

    def feed(self, chunk: str) -> list[ToolCall]:
        """Take more text; the calls that are certain by now and were not returned before."""
        ...

    def finish(self) -> ParsedTurn:
        """The whole turn, once all of it was fed."""
        ...


class ToolCallParser(Protocol):
    """Reads and writes the tool calls of one format. Never raises for what a model wrote."""

    @property
    def name(self) -> str:
        """The format's name, as `get_parser` takes it."""
        ...

    def parse(self, text: str, *, think_open: bool = False) -> ParsedTurn:
        """Take apart one complete turn.

        Args:
            think_open: the prompt ends inside `<think>`, so that the turn begins in it.
        """
        ...

    def stream(self) -> StreamingTurn:
        """Begin a turn that arrives in pieces."""
        ...

    def render(self, name: str, arguments: Mapping[str, Any]) -> str:
        """One call as the format writes it; `parse` gives the same back."""
        ...
