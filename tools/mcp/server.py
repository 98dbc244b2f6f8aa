"""Which MCP server to talk to: a program with its stdin and stdout, or an address."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self

from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from pydantic import BaseModel, ConfigDict, Field, model_validator

from ...schemas.redacted import is_secret
from ..config_values import ConfigPath


class McpServer(BaseModel):
    """Either `command` (started here, spoken to over stdio) or `url` (streamable HTTP).

    Attributes:
        command, args, env, cwd: the program. Of this process's environment it gets PATH, HOME and the like only.
        url, headers: the address, such as http://127.0.0.1:8000/mcp, and what to send with each request.
        connect_timeout_sec: seconds in which the connection must stand.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    command: str | None = None
    args: tuple[str, ...] = ()
    env: dict[str, str] = Field(default_factory=dict, repr=False)
    cwd: ConfigPath | None = None
    url: str | None = Field(default=None, pattern=r"^https?://[^/\s]+")
    headers: dict[str, str] = Field(default_factory=dict, repr=False)
    connect_timeout_sec: float = Field(default=30.0, gt=0, le=3600)

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.command is None) == (self.url is None):
            raise ValueError("give command (a program) or url (an address), one of the two")
        if self.command is not None and shutil.which(self.command) is None:
            raise ValueError(f"command: there is no program {self.command!r}")
        return self

    @property
    def key(self) -> str:
        """The same for settings that mean the same server."""
        return self.model_dump_json()

    def __str__(self) -> str:
        return self.url or " ".join((self.command or "", *_shown(self.args)))


def _shown(args: tuple[str, ...]) -> list[str]:
    """Without the values of options such as `--api-key`."""
    shown, hide = [], False
    for arg in args:
        option, equals, _ = arg.partition("=")
        secret = is_secret(option.lstrip("-"))
        shown.append("…" if hide else f"{option}=…" if secret and equals else arg)
        hide = secret and not equals and arg.startswith("-")
    return shown


@asynccontextmanager
async def open_streams(server: McpServer, on_end: Callable[[], None]) -> AsyncIterator[Any]:
    """The SDK's transport to a server; `on_end` is called when the server stops talking."""
    if server.command is not None:
        parameters = StdioServerParameters(
            command=server.command, args=list(server.args), env=server.env or None, cwd=server.cwd
        )
        async with stdio_client(parameters) as (read, write):
            yield _Watched(read, on_end), write
    else:
        assert server.url is not None
        async with (
            create_mcp_http_client(headers=server.headers) as http,
            streamable_http_client(server.url, http_client=http) as (read, write),
        ):
            yield _Watched(read, on_end), write


class _Watched:
    """A read stream that tells when it ends: the SDK itself finds out only at the next call, which is then lost."""

    def __init__(self, stream: Any, on_end: Callable[[], None]) -> None:
        self._stream = stream
        self._on_end = on_end

    @property
    def last_context(self) -> Any:
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> Any:
        return await self._stream.receive()

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self._stream.__anext__()
        except StopAsyncIteration:
            self._on_end()
            raise

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stream.__aexit__(kind, error, trace)
