"""Serve: open the backend, ask it a probe query, serve HTTP, drain."""

from __future__ import annotations

import asyncio
import socket
from contextlib import aclosing, suppress

import uvicorn
import uvloop

from ...schemas.errors import ConfigError, InfraError
from ...serving.access import server_token
from ...serving.bearer import RETRIEVER_TOKEN_VARIABLE
from ...serving.ending import Ending
from ...serving.listening import address_of, listening
from ..backends import backend_name, open_backend
from .app import create_app
from .searches import Searches
from .settings import RetrieverSettings


def serve(settings: RetrieverSettings) -> None:
    """Serve until SIGTERM or SIGINT, then drain. Prints the address once it is ready to answer.

    Raises:
        ConfigError: the address cannot be bound or needs a token, or the backend cannot be opened.
        InfraError: the probe query failed.
    """
    ending = Ending.of_this_process()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner, suppress(asyncio.CancelledError):
        runner.run(_serve(settings, ending))


async def _serve(settings: RetrieverSettings, ending: Ending) -> None:
    ending.starting = asyncio.current_task()
    token = server_token(
        settings.host,
        settings.token_file,
        settings.insecure,
        variable=RETRIEVER_TOKEN_VARIABLE,
        could="read the whole index",
    )
    listener = listening(settings.host, settings.port)
    name = backend_name(settings.backend, settings.sources)
    async with open_backend(name, settings.sources, settings.options) as backend:
        searches = Searches(backend, settings)
        async with aclosing(searches):
            await _probe(searches)
            config = uvicorn.Config(
                create_app(searches, settings, name, token),
                http="httptools",
                lifespan="off",
                log_level="warning",
                access_log=False,
                timeout_graceful_shutdown=settings.drain_s,
            )
            address = address_of(settings.host, listener)
            await _Server(config, address, ending).serve(sockets=[listener])


async def _probe(searches: Searches) -> None:
    try:
        await searches.probe()
    except InfraError as error:
        raise ConfigError(f"the retriever cannot start: {error}") from error


class _Server(uvicorn.Server):
    """Says where it serves once it does, and listens to signals."""

    def __init__(self, config: uvicorn.Config, address: str, ending: Ending) -> None:
        super().__init__(config)
        self._address = address
        self._ending = ending

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ending.served = True
        print(f"retriever on {self._address}", flush=True)  # noqa: T201
