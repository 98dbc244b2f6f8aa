"""One sandbox connection per process, event loop and address, shared by the tools that use it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from ..sandbox.client import Sandbox
from .sandbox_fleet import SandboxFleet

EMBEDDED, CONTAINER = "embedded", "docker"
SEPARATOR = ","
"""Between the addresses of several servers that serve as one."""


@dataclass(slots=True)
class _Shared:
    sandbox: asyncio.Task[Sandbox | SandboxFleet]
    users: int = 0


_open: dict[tuple[asyncio.AbstractEventLoop, str, str | None], _Shared] = {}


async def acquire(url: str, token: str | None = None) -> Sandbox | SandboxFleet:
    """The connection to `url`, or for `embedded` and `docker` to a server that is started at first use.

    Several addresses with commas between them are one fleet.

    Raises:
        ConfigError: `url` is no address, or there is no Docker engine. SandboxError: the server did not start.
    """
    key = (asyncio.get_running_loop(), url, token)
    shared = _open.get(key)
    if shared is None:
        shared = _open[key] = _Shared(asyncio.create_task(_enter(url, token)))
    shared.users += 1
    try:
        sandbox: Sandbox | SandboxFleet = await asyncio.shield(shared.sandbox)
        return sandbox
    except Exception:
        # A failed start is not kept: the next call tries again.
        if _open.get(key) is shared:
            del _open[key]
        raise


async def release(url: str, token: str | None = None) -> None:
    """Give the connection back; the last user closes it and ends a server that was started for it."""
    key = (asyncio.get_running_loop(), url, token)
    shared = _open.get(key)
    if shared is None:
        return
    shared.users -= 1
    if shared.users <= 0:
        del _open[key]
        await (await shared.sandbox).__aexit__(None, None, None)


async def _enter(url: str, token: str | None) -> Sandbox | SandboxFleet:
    if SEPARATOR in url:
        return await SandboxFleet(url.split(SEPARATOR), token).__aenter__()
    if url == EMBEDDED:
        sandbox = Sandbox.embedded()
    else:
        sandbox = Sandbox.container() if url == CONTAINER else Sandbox.connect(url, token=token)
    return await sandbox.__aenter__()
