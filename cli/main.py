"""`rollbox`: the commands. Each only reads its options; the work is done elsewhere."""

from __future__ import annotations

import sys

import typer

from ..schemas.errors import ConfigError, RollboxError
from ..serving.interrupt import sigterm_raises
from .data import app as data_app
from .demo import demo, demo_grpo, demo_gsm8k
from .inspect import diagnose, where
from .retriever import retriever
from .reward import rescore, reward
from .rollout import rollout
from .serve import serve
from .tools import tools
from .train import train
from .view import view

app = typer.Typer(
    name="rollbox",
    help="Tool-execution runtime for agentic RL.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.command()(serve)
app.command()(train)
app.add_typer(data_app, name="data")
app.command()(rollout)
app.command()(demo)
app.command(name="demo-gsm8k")(demo_gsm8k)
app.add_typer(retriever)
app.add_typer(reward)
app.command()(rescore)
app.command()(diagnose)
app.command()(where)
app.add_typer(tools)
app.command(name="demo-grpo")(demo_grpo)
app.command()(view)

EXIT_CONFIG = 2
EXIT_FAILED = 1


def main() -> None:
    """Run the command line. Exit codes: 0, 1 for a failed run, 2 for a wrong setting (as typer's own), 130 for Ctrl-C,
    143 for SIGTERM, which servers drain at and then end with 0."""
    try:
        with sigterm_raises():
            app()
    except ConfigError as error:
        print(f"rollbox: {error}", file=sys.stderr)  # noqa: T201
        sys.exit(EXIT_CONFIG)
    except RollboxError as error:
        print(f"rollbox: {error}", file=sys.stderr)  # noqa: T201
        sys.exit(EXIT_FAILED)


if __name__ == "__main__":
    main()
