"""Values that stand bare between two tags, so that they may hold anything, the tags themselves included."""

from __future__ import annotations

from dataclasses import dataclass

from .json_call import incomplete
from .scan import Scan


@dataclass(frozen=True, slots=True)
class BareValues:
    """How one format writes them.

    Attributes:
        end_tag: ends a value. following: of which one must come after it.
        call_open, call_close: begin and end a call. close: ends all that an unreadable call is skipped to.
        shape: what a call looks like, for the model.
    """

    end_tag: str
    following: tuple[str, ...]
    call_open: str
    call_close: str
    close: str
    shape: str

    def end(self, scan: Scan, position: int) -> int:
        """Position of the tag that ends a value: the first one that is followed by more of the call; -1 for none."""
        candidate = scan.find(self.end_tag, position)
        while candidate >= 0:
            following = scan.after_space(candidate + len(self.end_tag))
            if any(scan.at(following, tag) for tag in self.following):
                break
            candidate = scan.find(self.end_tag, candidate + 1)
        if candidate < 0:
            return -1
        # A value that was never closed would swallow the next call.
        ended = scan.text.find(self.call_close, position, candidate)
        return -1 if ended >= 0 and scan.text.find(self.call_open, ended, candidate) >= 0 else candidate

    def skip(self, scan: Scan, start: int, position: int, what: str) -> int:
        """Note that the call at `start` cannot be read; returns the position after it."""
        close = scan.find(self.close, position)
        if close < 0:
            return incomplete(scan, start, position, self.shape)
        scan.problem(start, f"The tool call at character {start} {what}. It was not run. {self.shape}")
        return close + len(self.close)
