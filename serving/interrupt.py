"""Signals at a time that suits the work: raised wherever they come, they can end in a destructor that swallows them."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing, contextmanager
from types import FrameType
from typing import Any, NoReturn, Self, TypeVar

T = TypeVar("T")
_KILLED = 128
STOPPED = (KeyboardInterrupt, SystemExit)
"""What Ctrl-C and SIGTERM raise."""


class _TermedError(BaseException):
    """Until it has left all that was at work: there a SystemExit may be taken for what a user's module did."""


@contextmanager
def sigterm_raises() -> Iterator[None]:
    """In its time SIGTERM raises, as Ctrl-C does: processes, temporary files and locks are let go of before the end.

    Where it is ignored, it stays so.

    Raises:
        SystemExit: there was a SIGTERM; with the code that a shell gives who dies of it.
    """
    termed = False

    def end(number: int, frame: FrameType | None) -> None:
        nonlocal termed
        termed = True
        if not _ending():
            raise _TermedError

    try:
        with _heard(end):
            yield
    except (_TermedError, SystemExit):
        if not termed:
            raise
    if termed:  # also where a destructor swallowed it
        _raise_sigterm()


def run_to_its_end(main: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run`, in which SIGTERM cancels as Ctrl-C does: sessions, servers and engines are closed before the end.

    Where it is ignored, it stays so.

    Raises:
        SystemExit: there was a SIGTERM; with the code that a shell gives who dies of it.
    """
    task: asyncio.Task[Any] | None = None
    termed = False

    def cancel(number: int, frame: FrameType | None) -> None:
        nonlocal termed
        signal.signal(number, _nothing)
        termed = True
        if task is not None and not task.done():
            task.cancel()
            task.get_loop().call_soon_threadsafe(lambda: None)  # wakes it where it waits for a descriptor

    async def cancellable() -> T:
        nonlocal task
        task = asyncio.current_task()
        if termed:
            raise asyncio.CancelledError
        return await main

    with closing(main), _heard(cancel):
        try:
            result = asyncio.run(cancellable())
        except asyncio.CancelledError:
            if not termed:
                raise
        if termed:  # also where it came too late to cancel anything: it must not be lost
            _raise_sigterm()
        return result


class Interrupt:
    """A context manager in whose time SIGINT and SIGTERM wait for the next `check`, or for its end. A second SIGINT is
    not waited with.

    Where one is ignored, as SIGINT is in a shell's background jobs, it stays so.
    """

    def __init__(self) -> None:
        self._wanted: int | None = None

    def __enter__(self) -> Self:
        self._before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        for number, before in self._before.items():
            if before is not signal.SIG_IGN:
                signal.signal(number, self._note)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)
        if kind is None:
            self.check()  # what came after the last one is not lost

    def check(self) -> None:
        """
        Raises:
            KeyboardInterrupt: there was a SIGINT. SystemExit: there was a SIGTERM.
        """
        if self._wanted == signal.SIGTERM:
            _raise_sigterm()
        if self._wanted is not None:
            raise KeyboardInterrupt

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._wanted = number
        if number == signal.SIGINT:
            signal.signal(number, self._before[signal.SIGINT])


@contextmanager
def _heard(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    if signal.getsignal(signal.SIGTERM) is signal.SIG_IGN:
        yield
        return
    before = signal.signal(signal.SIGTERM, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _ending() -> bool:
    """Whether what a SIGTERM raised is on its way out: a further one would cut short what it lets go of."""
    error = sys.exception()
    while error is not None and not isinstance(error, _TermedError):
        error = error.__context__
    return error is not None


def _nothing(number: int, frame: FrameType | None) -> None:
    """For a SIGTERM after the first, which is no haste: `timeout` sends two, to its child and to the child's group."""


def _raise_sigterm() -> NoReturn:
    raise SystemExit(_KILLED + signal.SIGTERM) from None
