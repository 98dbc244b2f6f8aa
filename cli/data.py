"""`rollbox data`: prepare training data from local files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ..training.data_sets.question import DataSet

app = typer.Typer(help="Prepare data sets for training with verl.", no_args_is_help=True)

Train = Annotated[list[Path], typer.Option(help="JSONL or Parquet file; may be given several times.")]
Test = Annotated[list[Path], typer.Option(help="The same, held out: what it asks is left out of training.")]
Out = Annotated[Path, typer.Option(help="Folder for train.parquet and test.parquet; made where it is missing.")]
Instruction = Annotated[str | None, typer.Option(help="The system message, in place of the data set's; '' for none.")]


@app.command()
def gsm8k(train: Train, test: Test, out: Out = Path("data/gsm8k"), instruction: Instruction = None) -> None:
    """GSM8K (Cobbe et al., 2021), for the recipe gsm8k_python."""
    from ..training.data_sets.gsm8k import GSM8K

    _prepare(GSM8K, train, test, out, instruction)


@app.command()
def dapo_math(train: Train, test: Test, out: Out = Path("data/dapo_math"), instruction: Instruction = None) -> None:
    """DAPO-Math-17k (Yu et al., 2025) or other mathematics, AIME as test, for the recipe dapo_math_python."""
    from ..training.data_sets.dapo_math import DAPO_MATH

    _prepare(DAPO_MATH, train, test, out, instruction)


@app.command()
def search_qa(
    train: Train,
    test: Test,
    out: Out = Path("data/search_r1"),
    instruction: Instruction = None,
    data_source: Annotated[str | None, typer.Option(help="Of rows that name none, such as nq or hotpotqa.")] = None,
) -> None:
    """Questions of Search-R1 or FlashRAG, for the recipe search_r1."""
    from ..training.data_sets.search_qa import search_qa

    _prepare(search_qa(data_source), train, test, out, instruction)


@app.command()
def code(
    train: Train,
    test: Test,
    out: Out = Path("data/code"),
    instruction: Instruction = None,
    max_tests: Annotated[int | None, typer.Option(min=1, help="Of each problem, the first ones.")] = None,
) -> None:
    """Problems of CodeContests, APPS, TACO or Eurus-2-RL-Data, for the recipe code_judge."""
    from ..training.data_sets.programs import programs

    _prepare(programs(max_tests), train, test, out, instruction)


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


def _prepare(data_set: DataSet, train: list[Path], test: list[Path], out: Path, instruction: str | None) -> None:
    from ..training.data_sets.prepare import prepare

    _say(prepare(data_set, train, test, out, data_set.instruction if instruction is None else instruction))


def _say(lines: list[str]) -> None:
    for line in lines:
        typer.echo(line)
