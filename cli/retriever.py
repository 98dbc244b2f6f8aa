"""`rollbox retriever …`: build an index of passages, and serve it."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

retriever = typer.Typer(name="retriever", help="Build and serve an index of passages.", no_args_is_help=True)


@retriever.command()
def index(
    corpus: Annotated[
        list[str], typer.Argument(help="JSONL, JSON or Parquet files (text also .gz, .zst), folders, globs.")
    ],
    out: Annotated[Path, typer.Option(help="Folder of the index. One that is unfinished is gone on with.")],
    max_bad: Annotated[float, typer.Option(min=0, max=1, help="Share of records that may be no passages.")] = 0.01,
    commit_every: Annotated[int, typer.Option(min=1, help="Passages that a kill can cost at most.")] = 50_000,
    memory_mb: Annotated[int, typer.Option(min=16, max=4000, help="MiB in which terms are gathered.")] = 128,
    threads: Annotated[int, typer.Option(min=1, max=8, help="Threads that gather them.")] = 1,
    restart: Annotated[bool, typer.Option("--restart", help="Throw away what --out holds.")] = False,
) -> None:
    """Index passages: records with `id`, and `contents` or `title` and `text`."""
    from ..retrieval.index.build import BuildOptions, build_index
    from ..retrieval.index.manifest import BAD_LINES
    from ..retrieval.index.progress import BuildProgress

    arguments = [argument for argument in sys.argv[1:] if argument != "--restart"]
    command = shlex.join(["rollbox", *arguments])
    options = BuildOptions(corpus, out, command, max_bad, commit_every, memory_mb, threads, restart)
    with BuildProgress(Console()) as progress:
        manifest = build_index(options, progress.advance)
    typer.echo(f"{manifest.passages} passages of {len(manifest.corpus)} files in {out}")
    if manifest.bad_records:
        typer.echo(f"{manifest.bad_records} records were left out; {out / BAD_LINES} says which and why")
