"""Finds servers that hang: connections stay open and say nothing, as when a process or a machine stands still."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp

from .replicas import Replica, Replicas

PROBE_S = 10.0
"""Seconds without an answer after which a server is asked for `/v1/models`, and seconds that it has to answer."""


@asynccontextmanager
async def watched(replicas: Replicas, session: aiohttp.ClientSession) -> AsyncIterator[None]:
    """Inside the context the requests of a server that hangs are given up, so that another one gets them.

    Where there is no other that is well, they wait: it may come back, and each has a deadline of its own.
    """
    several = replicas.all if len(replicas.all) > 1 else []
    tasks = [asyncio.create_task(_watch(replica, replicas, session)) for replica in several]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _watch(replica: Replica, replicas: Replicas, session: aiohttp.ClientSession) -> None:
    while True:
        await asyncio.sleep(PROBE_S)
        silent = replica.outstanding > 0 and time.monotonic() - replica.heard_at > PROBE_S
        if not silent and not replica.hangs:
            continue
        if await _is_there(replica.url, session):
            replica.heard()
        elif replicas.any_well(but=replica):
            replica.hung(2 * PROBE_S + 1.0)  # until after the next look


async def _is_there(url: str, session: aiohttp.ClientSession) -> bool:
    try:
        async with asyncio.timeout(PROBE_S), session.get(f"{url}/v1/models"):
            return True
    except TimeoutError:
        return False
    except aiohttp.ClientConnectorError as error:
        # One that is closing takes no new connections, and still answers on the old ones.
        return isinstance(error.os_error, ConnectionRefusedError)
    except aiohttp.ClientError:
        return True
