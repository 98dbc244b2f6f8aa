"""`rollbox rollout`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ..schemas.errors import ConfigError
from ..serving.interrupt import run_to_its_end
from .demo import EngineKind, TokenizerDir, let_idle_threads_sleep

Model = Annotated[str, typer.Option(help="A Hugging Face model directory, or the address of a server.")]
Data = Annotated[str, typer.Option(help="JSONL or Parquet file, or a name such as gsm8k in $ROLLBOX_DATA.")]
Tools = Annotated[str, typer.Option(help="Tools YAML, or the name of a shipped one, such as math.")]
Out = Annotated[Path, typer.Option(help="Directory of the run. One that holds a part of it is gone on with.")]


def rollout(
    model: Model,
    data: Data,
    out: Out,
    engine: EngineKind = None,
    tools: Tools = "all",
    n: Annotated[int, typer.Option(min=1, help="Trajectories per question.")] = 1,
    limit: Annotated[int | None, typer.Option(min=1, help="Questions at most; default: all.")] = None,
    data_source: Annotated[str | None, typer.Option(help="Replaces the data's own, which chooses the reward.")] = None,
    system: Annotated[str | None, typer.Option(help="System message, or @FILE.")] = None,
    rewards: Annotated[Path | None, typer.Option(help="Rewards YAML; default: outcome, format, tools.")] = None,
    tokenizer: TokenizerDir = None,
    parser: Annotated[str, typer.Option(help="Tool-call format.")] = "hermes",
    temperature: Annotated[float, typer.Option(min=0, help="0 is greedy.")] = 1.0,
    top_p: Annotated[float, typer.Option(help="Nucleus sampling.")] = 1.0,
    seed: Annotated[int | None, typer.Option(help="Each trajectory gets its own from it; default: none.")] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="Generated tokens per turn.")] = 1024,
    max_response_tokens: Annotated[int, typer.Option(min=1, help="Tokens per trajectory after the prompt.")] = 4096,
    max_turns: Annotated[int, typer.Option(min=1, help="Assistant turns.")] = 8,
    max_calls_per_turn: Annotated[int, typer.Option(min=1, help="Calls run of one turn.")] = 4,
    trajectory_timeout_s: Annotated[float, typer.Option(help="Seconds for one trajectory.")] = 600.0,
    concurrency: Annotated[int, typer.Option(min=1, help="Trajectories in flight.")] = 64,
    attempts: Annotated[int, typer.Option(min=1, help="Tries of a trajectory that fails through our fault.")] = 3,
    restart: Annotated[bool, typer.Option("--restart", help="Throw away what --out holds.")] = False,
    images: Annotated[bool, typer.Option("--images", help="A chat server's model sees images.")] = False,
    template_check: Annotated[str, typer.Option(help="strict, warn or off: are tool messages token-exact?")] = "strict",
) -> None:
    """Roll out questions with tools, score the answers, write trajectories, a summary and charts."""
    let_idle_threads_sleep()
    from ..rollout.data import find_data, load_samples, with_system
    from ..rollout.engines.registry import get_engine, model_setting
    from ..rollout.job import RolloutJob, run_job
    from ..rollout.loop import RolloutLimits
    from ..schemas.generation import SamplingParams
    from ..schemas.validation import validated
    from ..tools_config import find_tools

    samples = load_samples(find_data(data), data_source, limit)
    if system is not None:
        samples = with_system(samples, _text(system))
    sampling = {"temperature": temperature, "top_p": top_p, "seed": seed, "max_tokens": max_tokens}
    turn_limits = (max_turns, max_calls_per_turn, max_response_tokens)
    job = RolloutJob(
        title=f"rollout of {model} on {data}",
        model=model_setting(model, engine),
        samples=samples,
        tools_file=find_tools(tools),
        out_dir=out,
        parser=parser,
        n=n,
        concurrency=concurrency,
        attempts=attempts,
        restart=restart,
        sampling=validated(SamplingParams, sampling, "rollout"),
        limits=RolloutLimits(*turn_limits, trajectory_timeout_s=trajectory_timeout_s),
        rewards_file=rewards,
        template_check=template_check,  # type: ignore[arg-type]
    )
    served = get_engine(model, engine, tokenizer_dir=tokenizer, takes_images=images or None)
    run_to_its_end(run_job(job, served, Console()))


def _text(value: str) -> str:
    if not value.startswith("@"):
        return value
    try:
        return Path(value[1:]).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"system: {value[1:]} cannot be read: {error}") from error
