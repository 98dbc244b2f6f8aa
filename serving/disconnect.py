"""End the work of a client that has gone."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from fastapi import Request

T = TypeVar("T")


class ClientGoneError(Exception):
    """The client closed the connection before the answer was ready."""


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Await `work`, or cancel it and wait for its end when the client disconnects. The body must have been read.

    Raises:
        ClientGoneError: the client disconnected first.
    """
    running = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait({running, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            raise ClientGoneError
        return running.result()
    finally:
        for task in (running, gone):
            task.cancel()
        await asyncio.wait({running, gone})


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
