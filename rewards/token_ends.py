"""Which token of a turn holds which character of its text, by decoding the sampled ids again, a window at a time."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from ..schemas.trajectory import Decode

_UNREADABLE = "\ufffd"
_WINDOW = 32
_LONGEST_RUN = 512
"""Tokens that are looked at one by one: text that cannot be read for longer has no ends that are worth the time."""
_TRIES = 8
"""How many tokens a window is made shorter by, to end where a character does; no character has more bytes than four."""


def end_tokens(ids: Sequence[int], text: str, ends: Iterable[int], decode: Decode) -> list[int | None]:
    """For each end the position of the first token with which the text before that end is complete.

    A character can lie on several tokens (the bytes of an emoji): it is complete with the last of them.

    Args:
        ids: of the turn. text: what they decode to, from its start. ends: characters, in rising order, at least 1 each.
        decode: of the tokenizer that the ids are of.

    Returns:
        Positions in `ids`; None where ids and text do not belong together that far.
    """
    walk = _Walk(ids, text, decode)
    return [walk.token_of(end) for end in ends]


class _Walk:
    """Goes through a turn once. `_token` and `_char` are a place up to which ids and text are known to agree.

    Decoding each prefix from the turn's start would take time by the square of its length. What has been read can
    become unreadable again: where a tokenizer writes characters as bytes, one more byte can spoil those before it until
    the next. So a place counts only where the text up to it is whole; elsewhere each token is looked at. Behind a byte
    that could not be read no place counts: the bytes behind it may say something else when they are read without it.
    """

    def __init__(self, ids: Sequence[int], text: str, decode: Decode) -> None:
        self._ids, self._text, self._decode = ids, text, decode
        self._token = self._char = 0

    def token_of(self, end: int) -> int | None:
        """The position for an end; asked for in rising order."""
        while self._token + _WINDOW < len(self._ids):
            stop = self._token + _WINDOW
            if self._covered(stop) >= end:
                return self._first(end, stop)
            if not self._advance(stop, end):
                break
        return self._first(end, min(len(self._ids), self._token + _LONGEST_RUN))

    def _first(self, end: int, stop: int) -> int | None:
        """The first token from the known place on with which the text before `end` is complete."""
        candidates = range(self._token + 1, stop + 1)
        found = self._token + bisect_left(candidates, end, key=self._covered)
        before = self._whole(found)
        if found == self._token or (before is not None and before < end):
            return found if found < stop else None
        return next((token for token in range(self._token, stop) if self._covered(token + 1) >= end), None)

    def _advance(self, stop: int, end: int) -> bool:
        """Move the known place towards `stop`, but not past `end`; False where the text is not whole nearby."""
        for nearer in range(stop, max(self._token, stop - _TRIES), -1):
            char = self._whole(nearer)
            if char is not None and char < end:
                self._token, self._char = nearer, char
                return True
        return False

    def _whole(self, stop: int) -> int | None:
        """Characters of the text before token `stop`, where its ids decode to them and to nothing else."""
        for said in self._readings(stop):
            if said and said[-1] != _UNREADABLE and self._text.startswith(said, self._char):
                return self._char + len(said)
        return None

    def _covered(self, stop: int) -> int:
        """How many characters of the text are complete before token `stop`."""
        return self._char + max(_agreeing(said, self._text, self._char) for said in self._readings(stop))

    def _readings(self, stop: int) -> tuple[str, ...]:
        said = self._decode(self._ids[self._token : stop])
        # SentencePiece takes the space off the first word that it decodes.
        return (said,) if self._token == 0 else (said, f" {said}")


def _agreeing(said: str, text: str, start: int) -> int:
    """Length of the longest start of `said` that stands in the text at `start`."""
    if text.startswith(said, start):
        return len(said)
    return bisect_left(range(1, len(said) + 1), True, key=lambda length: not text.startswith(said[:length], start))
