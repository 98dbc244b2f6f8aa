"""Signals at a time that suits the work: raised wherever they come, they can end in a destructor that swallows them."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Coroutine
from types import FrameType
from typing import Any, Self, TypeVar

T = TypeVar("T")
_KILLED = 128


def run_to_its_end(main: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run`, in which SIGTERM cancels as Ctrl-C does: sessions, servers and engines are closed before the end.

    Raises:
        SystemExit: there was a SIGTERM; with the code that a shell gives who dies of it.
    """
    termed = False

    async def cancellable() -> T:
        task = asyncio.current_task()
        assert task is not None

        def cancel() -> None:
            nonlocal termed
            termed = True
            task.cancel()

        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, cancel)
        return await main

    with contextlib.closing(main):
        try:
            return asyncio.run(cancellable())
        except asyncio.CancelledError:
            if not termed:
                raise
            raise SystemExit(_KILLED + signal.SIGTERM) from None


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
