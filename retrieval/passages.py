"""Passages, what is found of them, and the text form in which Search-R1 keeps them."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, TypeGuard


@dataclass(frozen=True, slots=True)
class Passage:
    """One passage of a corpus. `title` may be empty, `text` not.

    `raw` is the record's own `contents` where title and text do not give it back byte by byte; else None.
    """

    id: str
    title: str
    text: str
    raw: str | None = None

    @classmethod
    def of_contents(cls, name: str, contents: str) -> Passage:
        """The passage whose `contents` are these."""
        title, text = split_contents(contents)
        return cls(name, title, text, None if joined_contents(title, text) == contents else contents)

    @property
    def contents(self) -> str:
        """As Search-R1 keeps it: the title in quotes on the first line, or no such line."""
        return joined_contents(self.title, self.text) if self.raw is None else self.raw


@dataclass(frozen=True, slots=True)
class Hit:
    """One passage found, see `Passage`. `score` is the engine's own: comparable within one answer only."""

    id: str
    title: str
    text: str
    score: float
    raw: str | None = None

    @classmethod
    def of(cls, passage: Passage, score: float) -> Hit:
        return cls(passage.id, passage.title, passage.text, score, passage.raw)

    @property
    def contents(self) -> str:
        return joined_contents(self.title, self.text) if self.raw is None else self.raw


def is_score(value: Any) -> TypeGuard[int | float]:
    """Whether `value`, from JSON, is a finite number; NaN and what is too large for a float cannot be answered with."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and abs(value) <= sys.float_info.max


def split_contents(contents: str) -> tuple[str, str]:
    """Title and text of Search-R1's `contents`: the title is the first line, in quotes; without one it is empty."""
    first, newline, rest = contents.strip().partition("\n")
    quoted = len(first) > 1 and first[0] == first[-1] == '"'
    if not newline or not rest.strip():
        return "", contents.strip()
    return (first[1:-1] if quoted else first).strip(), rest.strip()


def joined_contents(title: str, text: str) -> str:
    """`contents` as Search-R1 writes it."""
    return f'"{title}"\n{text}' if title else text


def storable(text: str) -> str:
    """`text` without lone surrogates, which JSON can carry and UTF-8 cannot."""
    return text.encode("utf-8", "replace").decode("utf-8")
