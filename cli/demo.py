"""`rollbox demo`, `rollbox demo-gsm8k` and `rollbox demo-grpo`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ..serving.interrupt import run_to_its_end

Model = Annotated[
    str | None,
    typer.Option(
        help="A Hugging Face model directory, or the address of a server (several: with commas); its own by default."
    ),
]
EngineKind = Annotated[
    str | None,
    typer.Option(
        "--engine",
        help="hf, vllm (in process), completions (vLLM server), sglang or chat (any OpenAI-compatible server).",
    ),
]
TokenizerDir = Annotated[Path | None, typer.Option(help="Tokenizer directory; needed when --model is an address.")]
Data = Annotated[Path | None, typer.Option(help="Questions as JSONL (GSM8K's layout or messages and ground_truth).")]
ToolsFile = Annotated[Path | None, typer.Option("--tools", help="Tools YAML; default: calculator and Python.")]
Out = Annotated[Path, typer.Option(help="Directory for trajectories, summary, chart and one trajectory as text.")]
Limit = Annotated[int | None, typer.Option("--n", min=1, help="How many questions.")]
Temperature = Annotated[float, typer.Option(min=0, help="0 is greedy.")]
MaxTokens = Annotated[int, typer.Option(min=1, help="Tokens per turn at most.")]
Concurrency = Annotated[int, typer.Option(min=1, help="Trajectories in flight.")]


def demo(
    model: Model = None,
    engine: EngineKind = None,
    tokenizer: TokenizerDir = None,
    data: Data = None,
    tools: ToolsFile = None,
    n: Limit = None,
    out: Out = Path("runs/demo"),
    temperature: Temperature = 0.0,
    max_tokens: MaxTokens = 256,
    concurrency: Concurrency = 64,
) -> None:
    """Roll out questions with tools, score them, and show what happened."""
    let_idle_threads_sleep()
    from ..demo.job import DemoOptions, run_demo

    options = DemoOptions(model, tokenizer, data, tools, n, out, temperature, max_tokens, concurrency, engine)
    run_to_its_end(run_demo(options, Console()))


def demo_gsm8k(
    model: Model = None,
    engine: EngineKind = None,
    tokenizer: TokenizerDir = None,
    data: Data = None,
    tools: ToolsFile = None,
    n: Limit = 20,
    out: Out = Path("runs/demo-gsm8k"),
    temperature: Temperature = 0.0,
    max_tokens: MaxTokens = 128,
    concurrency: Concurrency = 64,
) -> None:
    """The same on real GSM8K questions, with a few worked examples in the prompt."""
    let_idle_threads_sleep()
    from ..demo.job import DemoOptions, run_demo_gsm8k

    options = DemoOptions(model, tokenizer, data, tools, n, out, temperature, max_tokens, concurrency, engine)
    run_to_its_end(run_demo_gsm8k(options, Console()))


def demo_grpo(
    steps: Annotated[int, typer.Option(min=1, help="Training steps.")] = 2,
    out: Annotated[Path, typer.Option(help="Directory for metrics, records and the trainer's log.")] = Path(
        "runs/demo-grpo"
    ),
) -> None:
    """Train the demo model with verl for a few GRPO steps, without a GPU (needs verl's environment)."""
    let_idle_threads_sleep()
    from ..demo.grpo import GrpoOptions, run_grpo

    run_grpo(GrpoOptions(steps=steps, out=out), Console())


def let_idle_threads_sleep() -> None:
    """Before torch is loaded: by default its idle threads spin, and take the cores that tools and sandbox run on."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
