"""`rollbox reward …`: try, check and serve rewards; `rollbox rescore`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from ..schemas.errors import ConfigError, InfraError
from ..serving.interrupt import run_to_its_end

if TYPE_CHECKING:
    from ..rewards.dry_run import DryRun
    from ..rollout.rescore import Change

reward = typer.Typer(name="reward", help="Try, check and serve rewards.", no_args_is_help=True)
RewardsFile = Annotated[Path | None, typer.Option("--rewards", help="Rewards YAML; default: outcome, format, tools.")]
Modules = Annotated[list[str] | None, typer.Option("--module", help="Python file or module of your functions.")]


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


@reward.command(name="dry-run")
def dry_run(
    data: Annotated[str, typer.Argument(help="Questions: JSONL or Parquet, or a name in $ROLLBOX_DATA.")],
    responses: Annotated[Path, typer.Option(help="JSONL with a response a line, or a run's trajectories.jsonl.")],
    rewards: RewardsFile = None,
    baseline: Annotated[Path | None, typer.Option(help="Rewards YAML to compare with.")] = None,
    data_source: Annotated[str | None, typer.Option(help="Replaces the data's own.")] = None,
    histogram: Annotated[Path, typer.Option(help="Where the picture goes.")] = Path("rewards.png"),
) -> None:
    """Score responses that are there already: distributions, constant parts, time, determinism."""
    from ..rewards.dry_run import dry_run as run
    from ..rewards.trajectory import rewards_of
    from ..rollout.data import find_data, load_samples
    from ..rollout.report.reward_report import check_histogram, distribution_table, remarks, save_histogram
    from ..rollout.responses import read_responses

    check_histogram(histogram)
    trajectories = read_responses(responses, load_samples(find_data(data), data_source))
    ours, other = rewards_of(rewards), None if baseline is None else rewards_of(baseline)
    ours.check_samples([trajectory.sample for trajectory in trajectories])

    async def scored() -> DryRun:
        async with ours:
            if other is None:
                return await run(trajectories, ours)
            async with other:
                return await run(trajectories, ours, other)

    found = run_to_its_end(scored())
    console = _console()
    console.print(distribution_table(found))
    for line in remarks(found, baseline is not None):
        console.print(line, soft_wrap=True)
    if not found.scored:
        raise typer.Exit(1)
    save_histogram(found, histogram)
    console.print(f"Written to {histogram}", soft_wrap=True)


@reward.command()
def verify(
    names: Annotated[list[str] | None, typer.Argument(help="Registered names; default: all of the modules.")] = None,
    module: Modules = None,
) -> None:
    """Check score functions by their fixtures, and by answers that should earn nothing."""
    from ..rewards.modules import load_reward_modules
    from ..rewards.registry import REGISTRY, load_built_in
    from ..rewards.sandbox_access import ScoringSandbox
    from ..rewards.verify import verify as findings_of

    load_built_in()
    ours = {entry.pattern for entry in REGISTRY.entries()}
    load_reward_modules(module or ())
    entries = REGISTRY.entries()
    if names:
        entries = [REGISTRY.find(name) for name in names]
    elif module:
        entries = [entry for entry in entries if entry.pattern not in ours]
        if not entries:
            raise ConfigError(f"module: {', '.join(module)}: registers no score function; give one @score(DATA_SOURCE)")

    async def checked() -> int:
        failed = passed = 0
        async with ScoringSandbox() as sandbox:
            sandbox.use()
            async for finding in findings_of(entries):
                failed += bool(finding.problem)
                passed += not finding.problem
                if finding.problem:
                    typer.echo(f"{finding.pattern}: {finding.check}: {finding.problem}")
        typer.echo(f"{len(entries)} functions, {passed} checks passed, {failed} failed")
        return failed

    if run_to_its_end(checked()):
        raise typer.Exit(1)


def rescore(
    directory: Annotated[Path, typer.Argument(help="Directory of a run, with its trajectories.jsonl.")],
    rewards: RewardsFile = None,
) -> None:
    """Score saved trajectories again, show what changed and why, and write rescored.jsonl beside them."""
    from ..rewards.trajectory import rewards_of
    from ..rollout.rescore import change_table, check_can_write, examples, write_rescored
    from ..rollout.rescore import rescore as scored_again
    from ..rollout.responses import read_trajectories

    if not directory.is_dir():
        raise ConfigError(f"{directory} is not a directory of a run")
    check_can_write(directory)
    trajectories = read_trajectories(directory)
    ours = rewards_of(rewards)
    ours.check_samples([trajectory.sample for trajectory in trajectories])

    async def scored() -> list[Change]:
        async with ours:
            return await scored_again(trajectories, ours)

    changes = run_to_its_end(scored())
    console = _console()
    console.print(change_table(changes))
    for line in examples(changes):
        console.print(line, soft_wrap=True)
    if all(change.after is None for change in changes):
        why = next((change.error for change in changes if change.error), "all failed through the infrastructure")
        raise InfraError(f"rescore: no trajectory could be scored, so nothing was written: {why}")
    console.print(f"Written to {write_rescored(trajectories, directory)}", soft_wrap=True)


def _console() -> Console:
    """One that shows names and answers as they are: square brackets in them are no markup."""
    return Console(markup=False, emoji=False, highlight=False)
