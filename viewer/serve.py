"""Serve the pages of one run until SIGINT or SIGTERM."""

from __future__ import annotations

from pathlib import Path

import uvicorn
from pydantic import BaseModel, ConfigDict, Field

from ..schemas.errors import ConfigError
from ..serving.announced import AnnouncedServer, run_until_ended
from ..serving.ending import Ending
from ..serving.listening import address_of, listening
from .app import create_app
from .index import TrajectoryIndex
from .tokens import find_tokenizer

TRAJECTORIES, FAILURES = "trajectories.jsonl", "failures.jsonl"


class ViewSettings(BaseModel):
    """What the viewer is started with.

    Attributes:
        directory: of the run; holds `trajectories.jsonl`, and maybe `failures.jsonl`.
        tokenizer: folder with a `tokenizer.json`; the default is the run's own, if it has one.
        port: 0 takes a free one.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    directory: Path
    tokenizer: Path | None = None
    host: str = Field(default="127.0.0.1", min_length=1)
    port: int = Field(default=8765, ge=0, le=65_535)


def serve(settings: ViewSettings) -> None:
    """Print the address, and serve.

    Raises:
        ConfigError: there are no trajectories, the tokenizer cannot be read, or the address cannot be bound.
    """
    file = settings.directory / TRAJECTORIES
    if not file.is_file():
        raise ConfigError(f"{file}: is not there; give the directory that a run was written to (--out)")
    texts = find_tokenizer(settings.directory, settings.tokenizer)
    listener = listening(settings.host, settings.port)

    async def run(ending: Ending) -> None:
        async with TrajectoryIndex(file, settings.directory / FAILURES) as index:
            app = create_app(index, texts, settings.host)
            config = uvicorn.Config(app, lifespan="off", log_level="warning", timeout_graceful_shutdown=2)
            said = f"{file}\n{address_of(settings.host, listener)}/   (Ctrl-C ends it)"
            await AnnouncedServer(config, said, ending).serve(sockets=[listener])

    run_until_ended(run)
