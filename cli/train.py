"""`rollbox train`."""

from __future__ import annotations

import shlex
from typing import Annotated

import typer


def train(
    recipe: Annotated[str, typer.Argument(help="The name of a shipped recipe, or the path of a YAML file.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="Hydra overrides, such as trainer.nnodes=2.")] = None,
    preflight: Annotated[bool, typer.Option(help="Try tools, template, masks and reward before starting.")] = True,
    dry_run: Annotated[bool, typer.Option(help="Check, print the command, and stop.")] = False,
) -> None:
    """Train with verl: check everything that the recipe needs, then run verl's own trainer."""
    from ..training.launch import become, prepare

    command, environment, lines = prepare(recipe, overrides or [], check=preflight)
    for line in lines:
        typer.echo(f"preflight: {line}")
    if dry_run:
        typer.echo(shlex.join(command))
        return
    become(command, environment)
