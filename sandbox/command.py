"""Command: how a pool starts a program that is not one for its own Python."""

from __future__ import annotations

from dataclasses import dataclass

from .languages import Language


@dataclass(frozen=True, slots=True)
class Command:
    """What to execute in place of a Python program.

    Attributes:
        argv: the command; the request's own arguments come after it.
        file: work-dir name of the program. content: of that file, which is then executable; None for the request's
            code.
    """

    language: Language
    argv: tuple[str, ...]
    file: str
    content: bytes | None = None

    def env(self, asked: dict[str, str]) -> dict[str, str]:
        """The language's variables, and over them those of the request."""
        return {**self.language.env, **asked}
