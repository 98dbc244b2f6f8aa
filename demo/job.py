"""The demo's two jobs: held-out arithmetic with the taught model, and GSM8K with a pretrained one."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

from .. import tools_config
from ..rollout.data import load_samples
from ..rollout.engines.base import AnyEngine
from ..rollout.engines.registry import get_engine, model_setting
from ..rollout.job import RolloutJob, run_job
from ..rollout.loop import RolloutLimits
from ..rollout.report.summary import RunSummary
from ..schemas.errors import ConfigError
from ..schemas.generation import SamplingParams
from ..schemas.trajectory import Sample
from .gsm8k import SAMPLE_FILE, few_shot_samples
from .questions import generate
from .smollm2 import ensure_smollm2
from .teach import ensure_demo_model

DEFAULT_TOOLS = Path(tools_config.__file__).parent / "math.yaml"
DEFAULT_QUESTIONS = 200
_HELD_OUT_SEED = 1


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """What the command line can set; None takes the demo's own."""

    model: str | None = None
    tokenizer: Path | None = None
    data: Path | None = None
    tools: Path | None = None
    n: int | None = None
    out: Path = Path("runs/demo")
    temperature: float = 0.0
    max_tokens: int = 256
    concurrency: int = 64
    engine: str | None = None


def run_demo(options: DemoOptions, console: Console) -> Coroutine[Any, Any, RunSummary]:
    """Roll out held-out questions of the demo's kind, or the user's own data, with the demo model or the user's own.

    A model that is not there yet is taught at once: awaited, it would hold up the event loop, and signals with it.

    Raises:
        ConfigError: something given is wrong or missing. InfraError: too much failed.
    """
    _quiet_transformers()
    if options.data is not None:
        samples = load_samples(options.data, limit=options.n)
    else:
        samples = generate("heldout", options.n or DEFAULT_QUESTIONS, seed=_HELD_OUT_SEED)
    engine = _engine(options, lambda: _taught_model(console))
    title = f"rollbox demo: {options.model or 'the demo model'} on {options.data or 'held-out arithmetic'}"
    return run_job(_job(options, title, samples), engine, console)


def run_demo_gsm8k(options: DemoOptions, console: Console) -> Coroutine[Any, Any, RunSummary]:
    """Roll out GSM8K test questions behind a few worked examples; as `run_demo`.

    Raises:
        ConfigError: something given is wrong or missing. InfraError: too much failed.
    """
    _quiet_transformers()
    samples = few_shot_samples(options.data or SAMPLE_FILE, limit=options.n)
    engine = _engine(options, ensure_smollm2)
    title = f"GSM8K, {options.model or 'SmolLM2-135M-Instruct'} with worked examples"
    return run_job(_job(options, title, samples), engine, console)


def _job(options: DemoOptions, title: str, samples: list[Sample]) -> RolloutJob:
    return RolloutJob(
        title=title,
        model="demo" if options.model is None else model_setting(options.model, options.engine),
        samples=samples,
        tools_file=options.tools or DEFAULT_TOOLS,
        out_dir=options.out,
        concurrency=options.concurrency,
        restart=True,
        sampling=SamplingParams(temperature=options.temperature, max_tokens=options.max_tokens),
        # A CPU serves a whole batch slowly; nothing here should be cut for that.
        limits=RolloutLimits(max_turns=6, trajectory_timeout_s=3600.0),
    )


def _engine(options: DemoOptions, own_model: Callable[[], Path]) -> AnyEngine:
    model = own_model() if options.model is None else options.model
    return get_engine(model, options.engine, tokenizer_dir=options.tokenizer)


def _taught_model(console: Console) -> Path:
    """The demo model, taught now if this is the first time (about 80 CPU seconds)."""
    with Progress(console=console, transient=True) as progress:
        bar = progress.add_task("teaching the demo model (once)", total=None)

        def on_progress(step: int, steps: int, loss: float) -> None:
            progress.update(bar, completed=step, total=steps, description=f"teaching the demo model, loss {loss:.3f}")

        return ensure_demo_model(on_progress=on_progress)


def _quiet_transformers() -> None:
    """Keep the libraries' own bars and advice out of the demo's output."""
    try:
        import transformers
    except ImportError as error:
        raise ConfigError(f"demo: {error}; install it with: pip install 'rollbox[demo]'") from error

    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
