"""One sandbox connection per process, event loop and address, shared by the tools that use it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from ..sandbox.client import Sandbox

EMBEDDED = "embedded"


@dataclass(slots=True)
class _Shared:
    sandbox: asyncio.Task[Sandbox]
    users: int = 0


_open: dict[tuple[asyncio.AbstractEventLoop, str, str | None], _Shared] = {}


async def acquire(url: str, token: str | None = None) -> Sandbox:
    """The connection to `url`, or for `embedded` to a server of this process's own, started at first use.

    Raises:
        ConfigError: `url` is no address. SandboxError: the embedded server did not start.
    """
    key = (asyncio.get_running_loop(), url, token)
    shared = _open.get(key)
    if shared is None:
        shared = _open[key] = _Shared(asyncio.create_task(_enter(url, token)))
    shared.users += 1
    try:
        return await asyncio.shield(shared.sandbox)
    except Exception:
        # A failed start is not kept: the next call tries again.
        if _open.get(key) is shared:
            del _open[key]
        raise


async def release(url: str, token: str | None = None) -> None:
    """Give the connection back; the last user closes it and ends the embedded server."""
    key = (asyncio.get_running_loop(), url, token)
    shared = _open.get(key)
    if shared is None:
        return
    shared.users -= 1
    if shared.users <= 0:
        del _open[key]
        await (await shared.sandbox).__aexit__(None, None, None)


async def _enter(url: str, token: str | None) -> Sandbox:
    sandbox = Sandbox.embedded() if url == EMBEDDED else Sandbox.connect(url, token=token)
    return await sandbox.__aenter__()
