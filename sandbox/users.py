"""Users: a server that several processes share ends with the last of them. Each holds a connection to a local socket.

The kernel closes the connection of a user that is killed, so that no user is forgotten. The greeting that a user gets
is the promise that the server stays until that user has gone: both are decided in one event loop.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

OTHERS_STAY = b"others stay\n"
FIRST_USER_S = 60.0
"""How long a server waits for its first user: who started it may have been killed before connecting."""


class Users:
    """The users of this server, as an async context manager around its life."""

    def __init__(self, path: str, url: str, on_last_gone: Callable[[], None]) -> None:
        """
        Args:
            path: of the socket; its folder must be the user's own. `url`: what each user is told.
            on_last_gone: called once, when the last user has gone or none has come.
        """
        self._path = path
        self._greeting = json.dumps({"url": url, "pid": os.getpid()}).encode() + b"\n"
        self._on_last_gone = on_last_gone
        self._number = 0
        self._ending = False
        self._server: asyncio.Server | None = None
        self._inode = -1

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_unix_server(self._serve, self._path)
        self._inode = os.stat(self._path).st_ino
        asyncio.get_running_loop().call_later(FIRST_USER_S, self._end_if_unused)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending = True
        if self._server is not None:
            self._server.close()
        with suppress(OSError):
            # A server that was started meanwhile may have put its own socket there.
            if os.stat(self._path).st_ino == self._inode:
                os.unlink(self._path)

    def _end_if_unused(self) -> None:
        if self._number == 0 and not self._ending:
            self._ending = True
            self._on_last_gone()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._ending:
            writer.close()  # without a greeting: this user must look for another server
            return
        self._number += 1
        try:
            with suppress(OSError):
                writer.write(self._greeting)
                await reader.read()
        finally:
            self._number -= 1
            # The last one is told nothing, and waits for the end of this process.
            with suppress(OSError):
                writer.write(OTHERS_STAY if self._number else b"")
            writer.close()
            self._end_if_unused()
