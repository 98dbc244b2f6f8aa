"""The scan that all formats share: one pass from left to right, over a text that may still grow.

Each step either decides on a stretch of text, so that no text to come can change it, or says that it needs more text.
Hence a turn that arrives in pieces is read as the whole one is. Searches are remembered, so that a tag that is looked
for from many places is looked for once: the whole pass takes time linear in the text.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...schemas.surrogates import may_hold_surrogates, without_lone_surrogates
from ...schemas.tool import ToolCall
from .base import ParsedTurn, ParseProblem

if TYPE_CHECKING:
    from .tag_format import TagFormat

MAX_UNREADABLE = 32
"""A turn with more broken calls is noise, and each of them may cost another look at the same text."""
_SPACE = re.compile(r"\s*")
_decoder = json.JSONDecoder()
_LONGEST_JSON_ATOM_CHARS = 16  # `-Infinity` and `\uXXXX\uXXXX` are the longest that a cut can leave unfinished


class UndecidedError(Exception):
    """The text so far does not decide; `markers`: it cannot before one of these comes (empty: any text might)."""

    def __init__(self, *markers: str) -> None:
        super().__init__(*markers)
        self.markers = markers


class Scan:
    """One turn being read by one format.

    Attributes:
        text: the turn so far. final: nothing follows. position: everything before it is decided.
        turn: what was found so far.
    """

    def __init__(self, form: TagFormat, think_open: bool) -> None:
        self.form = form
        self.text = ""
        self.final = False
        self.position = 0
        self.turn = ParsedTurn()
        self._content: list[str] = []
        self._tentative: list[ToolCall | ParseProblem] = []
        self._said: list[str] = []
        self._drafts = 0
        self._mended = False
        self._found: dict[str, tuple[int, int, int]] = {}
        self._no_tag_before = 0
        self._unreadable = 0
        self._gave_up = False
        self._in_prompt_think = think_open
        self._bare_allowed = form.bare is not None

    def advance(self, text: str, final: bool) -> tuple[str, ...]:
        """Read on in `text`, which begins with the text of the call before.

        Returns:
            Markers of which one must come before it is worth while to read on; empty: any text, or nothing is left.
        """
        self.text, self.final = text, final
        try:
            while self._step():
                pass
        except UndecidedError as undecided:
            self._forget()
            return undecided.markers
        return ()

    def _step(self) -> bool:
        text, position = self.text, self.position
        if self._gave_up:
            return self._take_rest()
        if self._in_prompt_think:
            self._in_prompt_think = False
            try:
                self._think(position, position, self.form.think[0][1])
            except UndecidedError:
                self._in_prompt_think = True
                raise
            return True
        if self._bare_allowed:
            start = self.after_space(position)
            if self.form.bare is not None and text.startswith(self.form.bare, start):
                return self._call(position, start, self.form.bare)
        match = self.form.tags.search(text, max(position, self._no_tag_before))
        if match is None:
            return self._take_rest()
        tag, start = match.group(), match.start()
        if self._bare_allowed:
            self._bare_allowed = not text[position:start].strip()
        closing = self.form.think_tags.get(tag)
        if closing is not None:
            self._think(position, match.end(), closing)
            return True
        return self._call(position, start, tag)

    def _take_rest(self) -> bool:
        if self.final:
            self._content.append(self.text[self.position :])
            self.position = len(self.text)
            self.turn.content = self.form.cleaned("".join(self._content)).strip()
            return False
        if self._gave_up:
            raise UndecidedError
        self._no_tag_before = max(0, len(self.text) - self.form.longest_tag + 1)
        raise UndecidedError(*self.form.all_tags)

    def _think(self, position: int, inside: int, closing: str) -> None:
        closed = self.find(closing, inside)
        end = closed + len(closing) if closed >= 0 else inside
        if closed >= 0:
            self.turn.draft_calls += self.form.count_drafts(self.text, inside, closed)
        self._content.append(self.text[position:end])
        self.position = end

    def _call(self, position: int, start: int, tag: str) -> bool:
        end = self.form.read(self, start, tag)
        if end < 0:  # no call after all: the tag is text
            end = start + len(tag)
            self._bare_allowed = False
            self._content.append(self.text[position:end])
        else:
            self._content.append(self.text[position:start])
        self.position = end
        self._commit()
        return True

    def _forget(self) -> None:
        self._tentative.clear()
        self._said.clear()
        self._drafts = 0
        self._mended = False

    def _commit(self) -> None:
        self._content += self._said
        self.turn.draft_calls += self._drafts
        for found in self._tentative:
            if isinstance(found, ParseProblem):
                self.turn.problems.append(found)
                self._unreadable += 1
            else:
                self.turn.calls.append(found)
                self._unreadable += found.repaired
            if self._unreadable >= MAX_UNREADABLE:
                self._gave_up = True
                message = f"Nothing was read after {MAX_UNREADABLE} unreadable tool calls."
                self.turn.problems.append(ParseProblem(self.position, message))
                break
        self._forget()

    # What formats read with. Each raises UndecidedError where text to come could change the answer.

    def seen(self, tag: str, start: int) -> int:
        """Position of the next `tag` from `start` on in the text so far, or -1. Decides nothing about text to come."""
        begin, (first, hit, searched) = start, self._found.get(tag, (0, -1, 0))
        if first <= start:
            if hit >= start:
                return hit
            if hit < 0:
                begin = max(start, searched - len(tag) + 1)
        hit = self.text.find(tag, begin)
        self._found[tag] = (start if begin == start else min(first, start), hit, len(self.text))
        return hit

    def find(self, tag: str, start: int) -> int:
        """Position of the next `tag` from `start` on, or -1 when the turn has none."""
        hit = self.seen(tag, start)
        if hit < 0 and not self.final:
            raise UndecidedError(tag)
        return hit

    def find_first(self, tags: tuple[str, ...], start: int) -> int:
        """Position of the first of `tags` from `start` on; the end of the text when there is none."""
        match = _any_of(tags).search(self.text, start)
        if match is None and not self.final:
            raise UndecidedError(*tags)
        return match.start() if match else len(self.text)

    def after_space(self, position: int) -> int:
        """Position of the next character that is no white space; the end of the text when there is none."""
        match = _SPACE.match(self.text, position)
        end = match.end() if match else position
        if end == len(self.text) and not self.final:
            raise UndecidedError
        return end

    def at(self, position: int, tag: str) -> bool:
        """Whether `tag` stands at `position`."""
        if self.text.startswith(tag, position):
            return True
        if not self.final and tag.startswith(self.text[position : position + len(tag)]):
            raise UndecidedError
        return False

    def json(self, position: int) -> tuple[Any, int] | None:
        """The JSON object or array at `position` and the position after it; None where it is not valid."""
        try:
            value, end = _decoder.raw_decode(self.text, position)
        except json.JSONDecodeError as error:
            cut = "Unterminated" in error.msg or error.pos + _LONGEST_JSON_ATOM_CHARS >= len(self.text)
            if cut and not self.final:
                raise UndecidedError("}", "]") from None
        except ValueError:  # an integer too long to be read: more text may yet make it a fraction
            if not self.final:
                raise UndecidedError("}", "]") from None
        except RecursionError:
            pass
        else:
            if may_hold_surrogates(self.text, position, end):
                given, value = value, without_lone_surrogates(value)
                self._mended = self._mended or value != given
            return value, end
        return None

    def call(self, name: str, arguments: Mapping[str, Any], repaired: bool = False) -> None:
        """Note a call that was read."""
        repaired, self._mended = repaired or self._mended, False
        self._tentative.append(ToolCall(name=name, arguments=dict(arguments), repaired=repaired))

    def say(self, text: str) -> None:
        """Note text that is content, within what is read as one stretch."""
        self._said.append(text)

    def draft(self, count: int) -> None:
        """Note calls that were only sketched in reasoning."""
        self._drafts += count

    def problem(self, position: int, message: str) -> None:
        """Note a call that cannot be read."""
        self._tentative.append(ParseProblem(position, message))


@functools.cache
def _any_of(tags: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, tags)))
