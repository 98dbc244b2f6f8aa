"""What a parser returns, whatever the format."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

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


class ToolCallParser(Protocol):
    """Reads the tool calls out of one complete turn. Never raises for what a model wrote."""

    name: str

    def parse(self, text: str) -> ParsedTurn: ...
