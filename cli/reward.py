"""`rollbox reward …`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..schemas.errors import ConfigError

reward = typer.Typer(name="reward", help="Try, check and serve rewards.", no_args_is_help=True)
RewardsFile = Annotated[Path | None, typer.Option("--rewards", help="Rewards YAML; default: outcome, format, tools.")]


@reward.command()
def serve(
    rewards: RewardsFile = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 8090,
    concurrency: Annotated[int, typer.Option(min=1, help="Answers scored at a time.")] = 64,
    insecure: Annotated[bool, typer.Option("--insecure", help="No token even beyond loopback.")] = False,
) -> None:
    """Serve score functions over HTTP: POST /score and /v1/score/batch."""
    try:
        from ..rewards.serve import serve as serve_rewards
    except ImportError as error:
        raise ConfigError(f"reward serve: {error}; install it with: pip install 'rollbox[server]'") from error
    from ..rewards.trajectory import rewards_of

    serve_rewards(rewards_of(rewards), host, port, insecure=insecure, concurrency=concurrency)
