"""`rollbox data`: prepare training data from local files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Prepare data sets for training with verl.", no_args_is_help=True)

Out = Annotated[Path, typer.Option(help="Folder for the files; made where it is missing.")]
GSM8K_FILE = "GSM8K's questions and answers, JSONL or parquet."


@app.command()
def gsm8k(
    train: Annotated[Path, typer.Option(help=GSM8K_FILE)],
    test: Annotated[Path, typer.Option(help=GSM8K_FILE)],
    out: Out = Path("data/gsm8k"),
    instruction: Annotated[str | None, typer.Option(help="The system message; '' for none.")] = None,
) -> None:
    """GSM8K (Cobbe et al., 2021) as train.parquet and test.parquet."""
    from ..training.prepare_data import INSTRUCTION, prepare_gsm8k

    chosen = INSTRUCTION if instruction is None else instruction
    _say(prepare_gsm8k({"train": train, "test": test}, out, chosen))


@app.command()
def arithmetic(
    out: Out = Path("runs/arithmetic"),
    train_questions: Annotated[int, typer.Option(min=1)] = 1024,
    test_questions: Annotated[int, typer.Option(min=1)] = 128,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Steps of teaching; fewer leave a model that copies badly.")
    ] = None,
    guess_share: Annotated[
        float, typer.Option(min=0, max=1, help="Of its lessons, how many in 1 guessed and called no tool.")
    ] = 0.0,
) -> None:
    """The demo's arithmetic and the tiny model that is to learn it."""
    from ..demo.arithmetic_data import prepare_arithmetic

    _say(prepare_arithmetic(out, train_questions, test_questions, steps, guess_share))


def _say(lines: list[str]) -> None:
    for line in lines:
        typer.echo(line)
