"""Calls that are one bare text between tags: a program, or a query."""

from __future__ import annotations

import re

from ...schemas.tool import ParametersSchema
from .scan import Scan, UndecidedError

_REST_OF_LINE = re.compile(r"[ \t]*(?:\n|\Z)")


def text_end(scan: Scan, start: int, close: str, opener: str) -> int:
    """Position of the `close` that ends a program that begins at `start`; -1 where there is none.

    Programs may hold the tag in a string. So the first `close` that stands at the beginning or at the end of a line
    counts; only when there is none before the next `opener`, the first one of all.
    """
    first = candidate = scan.find(close, start)
    while candidate >= 0:
        if _edge_of_line(scan, start, candidate, close):
            return candidate
        following, opened = scan.seen(close, candidate + 1), scan.seen(opener, first)
        if opened >= 0 and (following < 0 or opened < following):
            return first
        if following < 0:
            if scan.final:
                return first
            raise UndecidedError(close, opener)
        candidate = following
    return -1


def single_text_parameter(parameters: ParametersSchema | None) -> str | None:
    """The one required parameter of a tool, if it is a string or a list of them; None otherwise or without schema."""
    if parameters is None:
        return None
    names = parameters.required or list(parameters.properties)
    if len(names) != 1 or names[0] not in parameters.properties:
        return None
    return names[0] if parameters.properties[names[0]].type in ("string", "array") else None


def _edge_of_line(scan: Scan, start: int, position: int, close: str) -> bool:
    before = position - 1
    while before >= start and scan.text[before] in " \t":
        before -= 1
    if before >= start and scan.text[before] == "\n":
        return True
    rest = _REST_OF_LINE.match(scan.text, position + len(close))
    if rest is not None and rest.end() == len(scan.text) and not rest.group().endswith("\n") and not scan.final:
        raise UndecidedError
    return rest is not None
