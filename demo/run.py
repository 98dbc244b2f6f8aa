"""The demo's main job: roll out questions with tools, live progress, a table, and the files of the run."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ..rewards.registry import check_samples
from ..rewards.trajectory import score_trajectory
from ..rollout.engines.base import AnyEngine
from ..rollout.loop import RolloutLimits, RolloutLoop
from ..rollout.parsers import get_parser
from ..rollout.report.files import RunFiles
from ..rollout.report.summary import RunSummary
from ..rollout.report.table import summary_table
from ..rollout.runner import run_samples
from ..schemas.generation import SamplingParams
from ..schemas.trajectory import Sample, Trajectory
from ..tools.base import BaseTool
from ..tools.registry import load_tools


@dataclass(frozen=True, slots=True)
class DemoRun:
    """What to roll out and where to write it.

    Attributes:
        tools_file: the tools YAML. out_dir: files of the run. concurrency: trajectories in flight.
    """

    title: str
    samples: Sequence[Sample]
    tools_file: Path
    out_dir: Path
    parser: str = "hermes"
    concurrency: int = 64
    sampling: SamplingParams = field(default_factory=SamplingParams)
    limits: RolloutLimits = field(default_factory=RolloutLimits)


async def run(demo: DemoRun, engine: AnyEngine, console: Console) -> RunSummary:
    """Roll out every sample and write the files.

    Raises:
        ConfigError: before anything runs: a sample that cannot be scored, a wrong tools file or chat template.
        InfraError: too many trajectories failed through the infrastructure.
    """
    check_samples(demo.samples)
    tools = load_tools(demo.tools_file)
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(engine)
        for tool in tools.values():
            stack.push_async_callback(tool.aclose)
        return await _roll_out(demo, engine, tools, console)


async def _roll_out(demo: DemoRun, engine: AnyEngine, tools: dict[str, BaseTool], console: Console) -> RunSummary:
    loop = RolloutLoop(engine, tools, get_parser(demo.parser), demo.sampling, demo.limits)
    started = time.perf_counter()
    with RunFiles(demo.out_dir) as files, _progress(console) as progress:
        bar = progress.add_task("rollouts", total=len(demo.samples), state="")
        async for trajectory in run_samples(loop, demo.samples, score_trajectory, concurrency=demo.concurrency):
            files.add(trajectory)
            state = _state(files.trajectories, time.perf_counter() - started)
            progress.update(bar, advance=1, state=state, refresh=True)
        wall_s = time.perf_counter() - started
        summary = files.finish(wall_s, demo.title, lambda ids: engine.tokenizer.decode(ids, skip_special_tokens=False))
    console.print(summary_table(summary, demo.title))
    console.print(f"Written to {demo.out_dir}/: trajectories.jsonl, summary.json, chart.png, trajectory.txt")
    return summary


def _progress(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, TextColumn("{task.fields[state]}"), console=console)


def _state(done: Sequence[Trajectory], elapsed_s: float) -> str:
    rewards = [trajectory.rewards for trajectory in done if trajectory.rewards is not None]
    correct = sum(bool(reward.correct) for reward in rewards)
    tokens = sum(sum(trajectory.response_mask) for trajectory in done)
    calls = sum(len(trajectory.records) for trajectory in done)
    return f"{correct}/{len(rewards)} correct, {tokens / elapsed_s:.0f} tokens/s, {calls / elapsed_s:.1f} calls/s"
