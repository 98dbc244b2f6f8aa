"""The sandbox that score functions may use: opened by the rewards that are being scored, at first use."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from contextvars import ContextVar
from types import TracebackType
from typing import Self

from ..sandbox.client import Sandbox
from ..schemas.errors import ConfigError

EMBEDDED = "embedded"
_current: ContextVar[ScoringSandbox | None] = ContextVar("scoring_sandbox", default=None)


class ScoringSandbox:
    """One connection, made when it is first asked for. An async context manager.

    Args:
        url: of a sandbox server; `embedded` starts one.
    """

    def __init__(self, url: str = EMBEDDED, token: str | None = None) -> None:
        self._sandbox = Sandbox.embedded() if url == EMBEDDED else Sandbox.connect(url, token=token)
        self._lock = asyncio.Lock()
        self._stack: AsyncExitStack | None = None
        self._is_open = False

    async def __aenter__(self) -> Self:
        self._stack = AsyncExitStack()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._stack is not None
        stack, self._stack, self._is_open = self._stack, None, False
        await stack.aclose()

    async def connected(self) -> Sandbox:
        """
        Raises:
            ConfigError: this is not open. SandboxError: an embedded server did not start.
        """
        async with self._lock:
            if self._stack is None:
                raise ConfigError("rewards: not open; score programs inside `async with` of the rewards")
            if not self._is_open:
                await self._stack.enter_async_context(self._sandbox)
                self._is_open = True
        return self._sandbox

    def use(self) -> None:
        """Make this the sandbox of the score functions that the running task calls."""
        _current.set(self)


async def scoring_sandbox() -> Sandbox:
    """The sandbox of the rewards that call this score function.

    Raises:
        ConfigError: no rewards are open around it. SandboxError: an embedded server did not start.
    """
    current = _current.get()
    if current is None:
        raise ConfigError("rewards: this score needs a sandbox, and none is open: use `async with` of the rewards")
    return await current.connected()
