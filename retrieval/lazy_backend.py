"""LazyBackend: a backend that opens at the first search, for those who cannot await when they are made."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from weakref import WeakKeyDictionary

from ..schemas.errors import ConfigError, InfraError
from .backend import BackendOptions
from .backends import BACKENDS, backend_name, open_backend
from .batching import BatchingRetriever
from .passages import Hit


class LazyBackend:
    """Opens once for each event loop; those who ask meanwhile wait. An opening that failed is tried again.

    Args:
        name: of the backend; empty: the one that fits `sources`.

    Raises:
        ConfigError: there is none of that name.
    """

    def __init__(self, name: str, sources: Sequence[str], options: BackendOptions | None = None) -> None:
        self._name = backend_name(name, sources)
        if self._name not in BACKENDS:
            raise ConfigError(f"backend: there is no {name!r}; there are: {', '.join(BACKENDS)}")
        self._sources = list(sources)
        self._options = options or BackendOptions()
        self._opening: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Task[_Open]] = WeakKeyDictionary()

    async def search(self, queries: list[str], top_k: int, timeout_s: float) -> tuple[list[list[Hit]], int]:
        """As the backend's; concurrent calls are put together where that is worth it.

        Raises:
            ConfigError: the backend cannot be opened. OverloadedError, InfraError: the backend's; or it was not open
                within `timeout_s` seconds.
        """
        loop = asyncio.get_running_loop()
        task = self._opening.get(loop)
        if task is None:
            task = self._opening[loop] = asyncio.create_task(self._open())
        deadline_s = loop.time() + timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                # Shielded: whoever waits for the same must not lose it with us.
                opened = await asyncio.shield(task)
        except TimeoutError:
            raise InfraError(f"search unavailable: backend {self._name} was not open in {timeout_s:.3g} s") from None
        except (ConfigError, InfraError):
            if self._opening.get(loop) is task:
                del self._opening[loop]
            raise
        return await opened.retriever.search(queries, top_k, deadline_s - loop.time())

    async def aclose(self) -> None:
        """Close what the running event loop has opened."""
        task = self._opening.pop(asyncio.get_running_loop(), None)
        if task is None:
            return
        task.cancel()
        [opened] = await asyncio.gather(task, return_exceptions=True)
        if isinstance(opened, _Open):
            await opened.stack.aclose()

    async def _open(self) -> _Open:
        async with AsyncExitStack() as stack:
            backend = await stack.enter_async_context(open_backend(self._name, self._sources, self._options))
            batches = BatchingRetriever(backend.retriever, backend.batch, backend.at_a_time)
            stack.push_async_callback(batches.aclose)
            return _Open(batches, stack.pop_all())
        raise AssertionError("the stack swallows nothing")


class _Open:
    def __init__(self, retriever: BatchingRetriever, stack: AsyncExitStack) -> None:
        self.retriever = retriever
        self.stack = stack
