"""Which token of a turn holds which character of its text, by decoding the sampled ids again, a window at a time."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from ..schemas.trajectory import Decode

_WINDOW = 32
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

    Decoding each prefix from the turn's start would take time by the square of its length. A bisection would not do:
    where a tokenizer writes characters as bytes, one more byte can make the text before it unreadable, until the next.
    """

    def __init__(self, ids: Sequence[int], text: str, decode: Decode) -> None:
        self._ids, self._text, self._decode = ids, text, decode
        self._token = self._char = self._found = 0

    def token_of(self, end: int) -> int | None:
        """The position for an end; asked for in rising order."""
        for stop in range(self._found + 1, len(self._ids) + 1):
            if self._covered(stop) >= end:
                self._found = stop - 1  # which may hold the next end too
                return self._found
            if stop - self._token >= _WINDOW:
                self._advance(stop)
        self._found = len(self._ids)
        return None

    def _advance(self, stop: int) -> None:
        """Move the known place towards `stop`, where a character ends; stay where none does nearby."""
        for nearer in range(stop, max(self._token, stop - _TRIES), -1):
            for said in self._readings(nearer):
                if said and self._text.startswith(said, self._char):
                    self._token, self._char = nearer, self._char + len(said)
                    return

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
