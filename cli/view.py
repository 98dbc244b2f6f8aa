"""`rollbox view`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..schemas.errors import ConfigError
from ..schemas.validation import validated


def view(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Directory of a run, finished or going on.")],
    port: Annotated[int, typer.Option(help="Port; 0 takes a free one.")] = 8765,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    tokenizer: Annotated[
        Path | None, typer.Option(help="Folder with a tokenizer.json; default: the run's own, if it has one.")
    ] = None,
) -> None:
    """Read a run's trajectories in the browser."""
    try:
        from ..viewer.serve import ViewSettings, serve
    except ImportError as error:
        raise ConfigError(f"view: {error}; install it with: pip install 'rollbox[view]'") from error
    options = {"directory": directory, "port": port, "host": host, "tokenizer": tokenizer}
    serve(validated(ViewSettings, options, "view"))
