"""One connection per server, process and event loop, which comes back when the server does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any
from weakref import WeakKeyDictionary

import httpx2
from mcp import Client, MCPError
from mcp.types import CONNECTION_CLOSED, INVALID_PARAMS, METHOD_NOT_FOUND, REQUEST_TIMEOUT

from ...schemas.errors import ErrorKind, InfraError, ToolError
from .server import McpServer, open_streams

_MAX_RETRIES = 3
_FIRST_PAUSE_S = 0.2
_MODELS_FAULT = frozenset({INVALID_PARAMS, METHOD_NOT_FOUND})


class _LostError(Exception):
    """The connection broke. `unsent`: before the request can have reached the server."""

    def __init__(self, message: str, unsent: bool) -> None:
        super().__init__(message)
        self.unsent = unsent


class McpConnection:
    """Connects at the first call. Any number of tasks may call at a time.

    The SDK's client must be entered and left by one task, which must outlive the calls of all others: a task of our
    own, that ends when the server goes away or `aclose` is called.
    """

    def __init__(self, server: McpServer) -> None:
        self.server = server
        self._owner: asyncio.Task[_LostError | None] | None = None
        self._client: asyncio.Future[Client] | None = None
        self._closing = asyncio.Event()

    async def call(
        self, name: str, arguments: dict[str, Any], timeout_s: float, *, repeatable: bool = False
    ) -> tuple[Any, int]:
        """Call a tool; its `CallToolResult`, and how often it was tried again.

        A call is tried again where it cannot have reached the server; where the connection broke in its middle, only
        if it is `repeatable`.

        Raises:
            ToolError: (arguments) the server does not take them.
            InfraError: the server cannot be reached, went away during the call, or did not answer in time.
        """
        deadline = time.monotonic() + timeout_s
        retries = 0
        while True:
            try:
                client = await self._connected(deadline - time.monotonic())
                return await self._ask(client, name, arguments, deadline - time.monotonic()), retries
            except _LostError as error:
                pause_s = _FIRST_PAUSE_S * 2**retries
                again = error.unsent or repeatable
                if not again or retries >= _MAX_RETRIES or time.monotonic() + pause_s >= deadline:
                    raise InfraError(f"MCP server {self.server}: {error}", retries) from error
            await asyncio.sleep(pause_s)
            retries += 1

    async def list_tools(self, timeout_s: float) -> list[Any]:
        """Every tool that the server has, as the SDK's `Tool`.

        Raises:
            InfraError: the server cannot be reached, or fails.
        """
        try:
            client = await self._connected(timeout_s)
            async with asyncio.timeout(timeout_s):
                page = await client.list_tools()
                tools = list(page.tools)
                while page.next_cursor:
                    page = await client.list_tools(cursor=page.next_cursor)
                    tools += page.tools
                return tools
        except (_LostError, MCPError, TimeoutError) as error:
            said = str(error) or f"no answer within {timeout_s:g} s"
            raise InfraError(f"MCP server {self.server}: {said}") from error

    async def aclose(self) -> None:
        """End the connection, and with it a server that was started for it."""
        owner, self._owner = self._owner, None
        self._closing.set()
        if owner is not None:
            await asyncio.gather(owner, return_exceptions=True)

    async def _connected(self, timeout_s: float) -> Client:
        if self._owner is None or self._owner.done() or self._closing.is_set():
            self._closing = asyncio.Event()
            self._client = asyncio.get_running_loop().create_future()
            self._owner = asyncio.create_task(self._own(self._client, self._closing))
        assert self._client is not None
        try:
            async with asyncio.timeout(timeout_s):
                return await asyncio.shield(self._client)
        except TimeoutError:
            raise _LostError(f"no connection within {timeout_s:.3g} s", unsent=True) from None

    async def _own(self, ready: asyncio.Future[Client], closing: asyncio.Event) -> _LostError | None:
        """Hold the connection open; what broke it, if anything did."""
        try:
            async with asyncio.timeout(self.server.connect_timeout_sec) as limit:
                async with Client(open_streams(self.server, closing.set)) as client:
                    limit.reschedule(None)
                    ready.set_result(client)
                    await closing.wait()
        except Exception as error:  # noqa: BLE001 - whatever it is, those who wait must hear of it
            if not ready.done():
                ready.set_exception(_LostError(f"cannot connect: {_cause(error)}", unsent=True))
                ready.exception()  # whoever waited may have gone
            return _LostError(_cause(error), unsent=_never_sent(error))
        finally:
            closing.set()
        return None

    async def _ask(self, client: Client, name: str, arguments: dict[str, Any], timeout_s: float) -> Any:
        owner = self._owner
        if owner is None or owner.done():
            raise _LostError("the connection was closed", unsent=True)
        call = asyncio.create_task(client.call_tool(name, arguments, read_timeout_seconds=max(timeout_s, 0.001)))
        try:
            # When the owner ends first, the SDK may leave the call waiting for ever.
            await asyncio.wait({call, owner}, return_when=asyncio.FIRST_COMPLETED)
            if not call.done():
                await _settled(call)
            if call.done() and not call.cancelled():
                return call.result()
        except MCPError as error:
            raise self._translated(error, owner, timeout_s) from error
        finally:
            if not call.done():
                call.cancel()
        raise _of_owner(owner)

    def _translated(self, error: MCPError, owner: asyncio.Task[_LostError | None], timeout_s: float) -> Exception:
        if error.code == CONNECTION_CLOSED:
            return _of_owner(owner)
        if error.code in _MODELS_FAULT:
            return ToolError(error.message, ErrorKind.ARGUMENTS)
        if error.code == REQUEST_TIMEOUT:
            return InfraError(f"MCP server {self.server}: no answer within {timeout_s:.3g} s")
        # Such as a session that the restarted server does not know: only a new connection helps.
        self._closing.set()
        return _LostError(error.message, unsent=False)


_open: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, tuple[McpConnection, set[int]]]] = WeakKeyDictionary()


def acquire(server: McpServer, user: object) -> McpConnection:
    """The connection to a server that this event loop's tools share."""
    connections = _open.setdefault(asyncio.get_running_loop(), {})
    connection, users = connections.setdefault(server.key, (McpConnection(server), set()))
    users.add(id(user))
    return connection


async def release(server: McpServer, user: object) -> None:
    """Give it back; the last user closes it."""
    connections = _open.get(asyncio.get_running_loop(), {})
    connection, users = connections.get(server.key, (None, set()))
    users.discard(id(user))
    if connection is not None and not users:
        del connections[server.key]
        await connection.aclose()


def _of_owner(owner: asyncio.Task[_LostError | None]) -> _LostError:
    error = owner.result() if owner.done() and not owner.cancelled() else None
    return error or _LostError("the server closed the connection", unsent=False)


async def _settled(task: asyncio.Task[Any]) -> None:
    """Let a task take notice of what happened at the same moment."""
    await asyncio.wait({task}, timeout=0.05)


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


def _never_sent(error: BaseException) -> bool:
    return any(isinstance(leaf, httpx2.ConnectError | httpx2.ConnectTimeout) for leaf in _leaves(error))


def _cause(error: BaseException) -> str:
    leaf = next(_leaves(error))
    if isinstance(leaf, MCPError):
        return leaf.message
    if isinstance(leaf, TimeoutError) and not str(leaf):
        return "no connection in time"
    return f"{type(leaf).__name__}: {leaf}"[:200]
