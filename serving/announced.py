"""A uvicorn server that says where it serves, and ends in order at every time."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import uvicorn

from .ending import Ending


class AnnouncedServer(uvicorn.Server):
    """Prints `said` once it serves, and listens to signals from then on."""

    def __init__(self, config: uvicorn.Config, said: str, ending: Ending) -> None:
        super().__init__(config)
        self._said = said
        self._ending = ending

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ending.served = True
        if self.started:
            print(self._said, flush=True)  # noqa: T201


def run_until_ended(
    serve: Callable[[Ending], Coroutine[Any, Any, None]],
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> None:
    """Run `serve`, which gives what it is called with to its server. SIGTERM and SIGINT end its start too."""
    ending = Ending.of_this_process()

    async def started() -> None:
        ending.starting = asyncio.current_task()
        await serve(ending)

    # Cancelled is a start that was ended.
    with asyncio.Runner(loop_factory=loop_factory) as runner, suppress(asyncio.CancelledError):
        runner.run(started())
