"""`rollbox diagnose` and `rollbox where`."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from ..schemas.errors import ConfigError


def diagnose(
    run: Annotated[Path, typer.Argument(help="A log of verl (console, JSONL, TensorBoard), or a directory of them.")],
) -> None:
    """Look through a training run's metrics for reward hacking and collapse. Exit code 1 when something is flagged."""
    from ..training.diagnose.checks import diagnose as flags_of
    from ..training.diagnose.logs import read_logs
    from ..training.diagnose.windows import MIN_POINTS

    if not run.exists():
        raise ConfigError(f"{run} is not there")
    series = read_logs(run)
    flags = flags_of(series)
    for flag in flags:
        typer.echo(f"{flag.fault}\n  evidence: {flag.evidence}\n  remedy: {flag.remedy}")
    steps = {step for values in series.values() for step, _ in values}
    typer.echo(f"{len(series)} metrics over {len(steps)} steps: {len(flags)} flagged")
    if len(steps) < MIN_POINTS:
        typer.echo(f"what changes over time is judged from {MIN_POINTS} steps on")
    if flags:
        raise typer.Exit(1)


def where(
    name: Annotated[str, typer.Argument(help="A data source, part, tool, format, estimator, loss or manager.")],
    rewards: Annotated[Path | None, typer.Option(help="Your rewards YAML, with its modules.")] = None,
    module: Annotated[list[str] | None, typer.Option(help="Python file or module of your score functions.")] = None,
    tools: Annotated[list[Path] | None, typer.Option(help="Your tools YAML.")] = None,
) -> None:
    """Say where a name is registered, which setting selects it, and who wins where several have it."""
    from ..rewards.modules import load_reward_modules
    from ..rollout.where import origins

    load_reward_modules(module or ())
    found = list(origins(name, rewards, tools or ()))
    if find_spec("verl") is not None:
        from ..training.where import origins as verl_origins

        found += verl_origins(name)
    for origin in found:
        typer.echo(f"{origin.kind} {origin.name!r}\n  registered: {origin.place}\n  selected by: {origin.selected_by}")
        if origin.note:
            typer.echo(f"  {origin.note}")
    if not found:
        without = (
            "" if find_spec("verl") is not None else "; verl is not installed, so its registries were not looked at"
        )
        raise ConfigError(f"where: nothing has the name {name!r}{without}")
