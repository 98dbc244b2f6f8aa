"""Serve: open the backend, ask it a probe query, serve HTTP, drain."""

from __future__ import annotations

import asyncio
import signal
from contextlib import aclosing
from types import FrameType

import uvicorn
import uvloop

from ...schemas.errors import ConfigError, InfraError
from ...serving.access import server_token
from ...serving.bearer import RETRIEVER_TOKEN_VARIABLE
from ...serving.listening import listening
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
    # uvicorn raises the signal again once it has drained; without this the process would seem to have been killed.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _already_handled)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(settings))


async def _serve(settings: RetrieverSettings) -> None:
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
            print(f"retriever on http://{settings.host}:{listener.getsockname()[1]}", flush=True)  # noqa: T201
            await uvicorn.Server(config).serve(sockets=[listener])


async def _probe(searches: Searches) -> None:
    try:
        await searches.probe()
    except InfraError as error:
        raise ConfigError(f"the retriever cannot start: {error}") from error


def _already_handled(number: int, frame: FrameType | None) -> None:
    """The signal has done its work: the server has drained."""
