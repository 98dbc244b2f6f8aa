"""A turn that arrives in pieces."""

from __future__ import annotations

from ...schemas.tool import ToolCall
from .base import ParsedTurn
from .scan import Scan

_WORK_PER_CHAR = 4
_FREE_WORK_CHARS = 65_536
_LONGEST_MARKER_CHARS = 64
_COPY_DISCOUNT = 32  # joining the pieces is a plain copy, far cheaper a character than reading


class ScanStream:
    """Feeds a scan as the text comes.

    Looking again at an unfinished call costs what was written of it so far. It is done when a tag has come that can
    end it, and only while all such looks stay within a few times the text fed: a call may then be reported later, but
    the time stays linear.
    """

    def __init__(self, scan: Scan) -> None:
        self._scan = scan
        self._pieces: list[str] = []
        self._fed_chars = self._work_chars = self._returned = 0
        self._markers: tuple[str, ...] = ()
        self._tail = ""
        self._owed = False

    def feed(self, chunk: str) -> list[ToolCall]:
        if not chunk:
            return []
        self._pieces.append(chunk)
        self._fed_chars += len(chunk)
        woken = self._owed or self._woken(chunk)
        self._tail = (self._tail + chunk)[-_LONGEST_MARKER_CHARS:]
        if woken:
            unread = self._fed_chars - self._scan.position
            cost = unread + self._fed_chars // _COPY_DISCOUNT
            self._owed = self._work_chars + cost > _WORK_PER_CHAR * self._fed_chars + _FREE_WORK_CHARS
            if not self._owed:
                self._work_chars += cost
                self._markers = self._scan.advance(self._text(), final=False)
        return self._new_calls()

    def finish(self) -> ParsedTurn:
        self._scan.advance(self._text(), final=True)
        return self._scan.turn

    def _woken(self, chunk: str) -> bool:
        if not self._markers:
            return True
        overlap = max(map(len, self._markers)) - 1
        seen = (self._tail[-overlap:] if overlap else "") + chunk
        return any(marker in seen for marker in self._markers)

    def _text(self) -> str:
        self._pieces = ["".join(self._pieces)]
        return self._pieces[0]

    def _new_calls(self) -> list[ToolCall]:
        calls = self._scan.turn.calls[self._returned :]
        self._returned += len(calls)
        return calls
