"""Serve: open the backend, ask it a probe query, serve HTTP, drain."""

from __future__ import annotations

from contextlib import aclosing
from functools import partial

import uvicorn
import uvloop

from ...schemas.errors import ConfigError, InfraError
from ...serving.access import server_token
from ...serving.announced import AnnouncedServer, run_until_ended
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
    run_until_ended(partial(_serve, settings), uvloop.new_event_loop)


async def _serve(settings: RetrieverSettings, ending: Ending) -> None:
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
            said = f"retriever on {address_of(settings.host, listener)}"
            await AnnouncedServer(config, said, ending).serve(sockets=[listener])


async def _probe(searches: Searches) -> None:
    try:
        await searches.probe()
    except InfraError as error:
        raise ConfigError(f"the retriever cannot start: {error}") from error
