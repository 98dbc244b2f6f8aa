"""Ctrl-C at a time that suits the work: raised wherever it comes, it can end in a destructor, which swallows it."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Self


class Interrupt:
    """A context manager in whose time SIGINT waits for the next `check`. A second one is not waited with.

    Where it is ignored, as in a shell's background jobs, it stays so.
    """

    def __init__(self) -> None:
        self._wanted = False

    def __enter__(self) -> Self:
        self._before = signal.getsignal(signal.SIGINT)
        if self._before is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def check(self) -> None:
        """
        Raises:
            KeyboardInterrupt: there was a SIGINT.
        """
        if self._wanted:
            raise KeyboardInterrupt

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._wanted = True
        signal.signal(number, self._before)
