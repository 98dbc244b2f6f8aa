"""A whole rollout run: questions in, live progress, a table, and the files of the run."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import importlib.util
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from ..rewards.compose import RewardComposition
from ..rewards.trajectory import rewards_of
from ..schemas.errors import ConfigError
from ..schemas.generation import SamplingParams
from ..schemas.redacted import redacted
from ..schemas.trajectory import Sample
from ..tools.registry import load_tools
from .chat_template import Check, check_mode
from .engines.base import AnyEngine
from .engines.model_digest import tokenizer_digest
from .loop import RolloutLimits, RolloutLoop
from .parsers import get_parser
from .report.files import RunFiles
from .report.progress import RunProgress
from .report.summary import RunSummary
from .report.table import summary_table
from .runner import InfraGuard, RolloutTask, run_tasks, tasks_of
from .vision.image_digest import image_digest


@dataclass(frozen=True, slots=True)
class RolloutJob:
    """What to roll out and where to write it.

    Attributes:
        title: of the table and the chart. model: see `model_setting`; part of what makes it the same run.
        tools_file: the tools YAML. out_dir: files of the run.
        n: trajectories per question. concurrency: trajectories in flight.
        attempts: tries of a trajectory that fails through our fault.
        restart: throw away what an earlier run left in `out_dir`, instead of going on with it.
        template_check: see `ChatTemplate`.
        rewards_file: what the reward is made of; None takes the default rewards.
    """

    title: str
    model: str
    samples: Sequence[Sample]
    tools_file: Path
    out_dir: Path
    parser: str = "hermes"
    n: int = 1
    concurrency: int = 64
    attempts: int = 3
    restart: bool = False
    sampling: SamplingParams = field(default_factory=SamplingParams)
    limits: RolloutLimits = field(default_factory=RolloutLimits)
    guard: InfraGuard = field(default_factory=InfraGuard)
    template_check: Check = "strict"
    rewards_file: Path | None = None

    def settings(self) -> dict[str, Any]:
        """What must be the same for a run to be gone on with: all that shapes a trajectory. See `image_digest` too."""
        questions = hashlib.sha256("".join(sample.model_dump_json() for sample in self.samples).encode())
        named = {} if self.rewards_file is None else {"rewards": _digest(self.rewards_file)}
        return {
            "model": self.model,
            "tools": _digest(self.tools_file),
            "questions": questions.hexdigest()[:16],
            "n": self.n,
            "parser": self.parser,
            "sampling": self.sampling.model_dump(),
            "limits": asdict(self.limits),
            **named,
        }

    def rewards(self) -> RewardComposition:
        """
        Raises:
            ConfigError: the rewards file is wrong.
        """
        return rewards_of(self.rewards_file)


async def run_job(job: RolloutJob, engine: AnyEngine, console: Console) -> RunSummary:
    """Roll out every sample that is not there yet, and write the files.

    Raises:
        ConfigError: before anything runs: a sample that cannot be scored, a wrong tools file, rewards file or chat
            template, an image that cannot be read, an `out_dir` with another run.
        InfraError: too many trajectories failed through the infrastructure.
    """
    _check_libraries()
    rewards = job.rewards()
    rewards.check_samples(job.samples)
    tools = load_tools(job.tools_file)
    parser = get_parser(job.parser, [tool.tool_schema for tool in tools.values()])
    check_mode(job.template_check)
    images = await image_digest(job.samples)
    settings = job.settings() if images is None else {**job.settings(), "images": images}
    async with contextlib.AsyncExitStack() as stack:
        files = stack.enter_context(RunFiles(job.out_dir, settings, restart=job.restart))
        for name in rewards.config.group_parts:
            console.print(
                f"reward part {name}: 0 in this run, because one trajectory does not know its group; "
                f"`rollbox rescore {job.out_dir} --rewards {job.rewards_file}` adds it",
                markup=False,
            )
        await stack.enter_async_context(rewards)
        await stack.enter_async_context(engine)
        for tool in tools.values():
            stack.push_async_callback(tool.aclose)
        loop = RolloutLoop(engine, tools, parser, job.sampling, job.limits, template_check=job.template_check)
        return await _roll_out(job, loop, rewards, files, console)


async def _roll_out(
    job: RolloutJob,
    loop: RolloutLoop,
    rewards: RewardComposition,
    files: RunFiles,
    console: Console,
) -> RunSummary:
    engine = loop.engine
    for sample in job.samples:
        loop.check_sample(sample)
    files.begin(await asyncio.to_thread(_served, engine))
    await _save_tokenizer(engine, job.out_dir)
    tasks = tasks_of(job.samples, job.n, job.sampling.seed)
    missing = [task for task in tasks if task.trajectory_id not in files.done]
    if len(missing) < len(tasks):
        _say(console, f"{len(tasks) - len(missing)} of {len(tasks)} trajectories are in {job.out_dir}/ already")
    started = time.perf_counter()
    try:
        await _fill(job, loop, rewards, missing, files, RunProgress(console, len(tasks), files.tally))
    except (KeyboardInterrupt, asyncio.CancelledError):
        _say(console, f"stopped; the same command goes on with what is in {job.out_dir}/")
        raise
    wall_s, title = time.perf_counter() - started, redacted(job.title)
    decode = engine.tokenizer.decode
    summary = files.finish(wall_s, title, lambda ids: decode(ids, skip_special_tokens=False))
    console.print(summary_table(summary, title))
    _say(
        console, f"Written to {job.out_dir}/: trajectories.jsonl and .parquet, summary.json, chart.png, trajectory.txt"
    )
    return summary


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False)  # a path may hold brackets


async def _fill(
    job: RolloutJob,
    loop: RolloutLoop,
    rewards: RewardComposition,
    tasks: list[RolloutTask],
    files: RunFiles,
    progress: RunProgress,
) -> None:
    trajectories = run_tasks(
        loop, tasks, rewards.score, concurrency=job.concurrency, attempts=job.attempts, guard=job.guard
    )
    # Closed at once when something goes wrong here: it ends the trajectories that run.
    with progress:
        async with contextlib.aclosing(trajectories):
            async for trajectory in trajectories:
                if trajectory.images:
                    await asyncio.to_thread(files.write_images, trajectory)
                files.add(trajectory)
                progress.advance(files.tally)


def _check_libraries() -> None:
    """What only the end of a run needs must not be found missing there."""
    for name in ("matplotlib", "pyarrow"):
        if importlib.util.find_spec(name) is None:
            raise ConfigError(f"rollout: {name} is not installed; install it with: pip install 'rollbox[rollout]'")


def _served(engine: AnyEngine) -> dict[str, Any]:
    """What the engine has under the name that the user gave, which may be another model than yesterday."""
    found = {"model": getattr(engine, "model_id", None), "tokenizer": tokenizer_digest(engine.tokenizer)}
    return {name: value for name, value in found.items() if value is not None}


async def _save_tokenizer(engine: AnyEngine, out_dir: Path) -> None:
    """So that the tokens can be read without the model."""
    save = getattr(engine.tokenizer, "save_pretrained", None)
    if save is not None:
        await asyncio.to_thread(save, str(out_dir / "tokenizer"))


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
