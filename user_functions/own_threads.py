"""A thread of its own for each call of a plain function: one that hangs holds up no other, nor the process's end.

Coroutine functions are awaited in the event loop.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any
from weakref import WeakKeyDictionary

from ..schemas.errors import InfraError

MAX_ABANDONED = 64
"""Calls that may hang at a time. A thread cannot be ended from outside; each holds its stack and what it works on."""


class OwnThreads:
    """The calls of one function.

    Not threads of the event loop's pool: that has a few for everything, and the process waits for them when it ends.
    """

    def __init__(self, at_a_time: int | None = None) -> None:
        """
        Args:
            at_a_time: calls that run side by side for one event loop; further ones wait. None has no limit.
        """
        self._at_a_time = at_a_time
        self._abandoned: set[threading.Thread] = set()
        self._turns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()

    async def call(self, described: str, function: Callable[[], Any], limit_s: float | None = None) -> Any:
        """What the function gives, awaited where that is to be awaited.

        Args:
            described: the function, for messages.
            limit_s: after so many seconds a call in a thread is left alone; waiting for others does not count.

        Raises:
            InfraError: it did not end in time, or too many earlier calls still hang. Else what the function raises.
        """
        if inspect.iscoroutinefunction(function):
            return await function()
        result = await self._threaded(described, function, limit_s)
        return await result if inspect.isawaitable(result) else result

    async def _threaded(self, described: str, function: Callable[[], Any], limit_s: float | None) -> Any:
        async with self._turn():
            self._abandoned = {thread for thread in self._abandoned if thread.is_alive()}
            if len(self._abandoned) >= MAX_ABANDONED:
                raise InfraError(f"{len(self._abandoned)} earlier calls of {described} still hang")
            try:
                async with asyncio.timeout(limit_s) as limit:
                    return await self._in_thread(described, function)
            except TimeoutError as error:
                if not limit.expired():  # the function's own
                    raise
                raise InfraError(f"{described} did not end within {limit_s:g} s") from error

    def _turn(self) -> AbstractAsyncContextManager[None]:
        if self._at_a_time is None:
            return nullcontext()
        return self._turns.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(self._at_a_time))

    async def _in_thread(self, described: str, function: Callable[[], Any]) -> Any:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        context = contextvars.copy_context()

        def deliver(outcome: Any, error: BaseException | None) -> None:
            if not future.done():
                future.set_result(outcome) if error is None else future.set_exception(error)

        def run() -> None:
            outcome, error = None, None
            try:
                outcome = context.run(function)
            except BaseException as raised:  # noqa: BLE001 - it is the caller's to hear of, SystemExit too
                plain = isinstance(raised, Exception) and not isinstance(raised, StopIteration)  # no future takes one
                error = raised if plain else RuntimeError(repr(raised))
            if not loop.is_closed():
                loop.call_soon_threadsafe(deliver, outcome, error)

        thread = threading.Thread(target=run, name=described, daemon=True)
        thread.start()
        try:
            return await future
        except asyncio.CancelledError:
            self._abandoned.add(thread)
            raise
