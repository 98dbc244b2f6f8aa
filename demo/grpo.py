"""The end of the demo: real GRPO steps of the demo model on tool-using arithmetic, without a GPU."""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from ..schemas.errors import ConfigError, RollboxError
from ..training.launch import prepare, run_trainer
from .arithmetic_data import prepare_arithmetic

_SHOWN_LINES = 25


@dataclass(frozen=True, slots=True)
class GrpoOptions:
    """What the command line can set.

    Attributes:
        prompts: questions in a step. group: trajectories for each of them.
    """

    steps: int = 2
    prompts: int = 8
    group: int = 8
    out: Path = Path("runs/demo-grpo")


def run_grpo(options: GrpoOptions, console: Console) -> dict[int, dict[str, float]]:
    """Prepare model and data, train, and show what each step did.

    Returns:
        step -> verl's metrics.

    Raises:
        ConfigError: verl is not installed, or something that the run needs is wrong.
        RollboxError: the trainer failed; the message holds the end of its log.
    """
    out = options.out.resolve()
    with console.status("preparing the model and the questions"):
        prepare_arithmetic(out, train_questions=64 * options.prompts, test_questions=32)
    command, environment, lines = prepare("cpu_arithmetic", _overrides(options, out))
    for line in lines:
        console.print(f"preflight: {line}", style="dim")
    environment["VERL_FILE_LOGGER_PATH"] = str(out / "metrics.jsonl")
    log = out / "train.log"
    with console.status(f"{options.steps} GRPO steps with verl (its log: {log})"):
        code = run_trainer(command, environment, log)
    if code != 0:
        raise RollboxError(f"verl's trainer ended with exit code {code}; the end of {log}:\n{_tail(log)}")
    metrics = read_metrics(out / "metrics.jsonl")
    console.print(metrics_table(metrics))
    console.print(f"Written to {out}/: metrics.jsonl, train.log, records/ (every trajectory), model/")
    return metrics


def read_metrics(path: Path) -> dict[int, dict[str, float]]:
    """step -> metrics, of a file of verl's `file` logger.

    Raises:
        ConfigError: the file cannot be read.
    """
    found: dict[int, dict[str, float]] = {}
    try:
        for line in path.read_text(encoding="utf-8").splitlines():
            entry = json.loads(line)
            found.setdefault(int(entry["step"]), {}).update(entry["data"])
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(f"{path}: not a file of verl's metrics: {error}") from error
    return found


def metrics_table(metrics: dict[int, dict[str, float]]) -> Table:
    """One row for each training step; `prob diff` is the largest |p_rollout - p_actor| of a token."""
    table = Table(title="GRPO with verl on a CPU")
    columns: list[tuple[str, Any]] = [
        ("reward", lambda m: f"{m['critic/score/mean']:.3f}"),
        ("correct", lambda m: f"{m['rollbox/reward/acc/mean']:.0%}"),
        ("calls", lambda m: f"{sum(v for k, v in m.items() if k.startswith('rollbox/tool/') and 'calls' in k):.0f}"),
        ("turns", lambda m: f"{m['rollbox/turns/mean']:.2f}"),
        ("masked", lambda m: f"{m['rollbox/infra_failed_total']:.0f}"),
        ("grad norm", lambda m: f"{m['actor/grad_norm']:.3f}"),
        ("prob diff", lambda m: f"{m['training/rollout_probs_diff_max']:.1e}"),
        ("step s", lambda m: f"{m['perf/time_per_step']:.1f}"),
    ]
    table.add_column("step")
    for name, _ in columns:
        table.add_column(name, justify="right")
    for step, values in sorted(metrics.items()):
        if "actor/grad_norm" in values:
            table.add_row(str(step), *(show(values) for _, show in columns))
    return table


def _overrides(options: GrpoOptions, out: Path) -> list[str]:
    return [
        f"data.train_files={out}/train.parquet",
        f"data.val_files={out}/test.parquet",
        f"actor_rollout_ref.model.path={out}/model",
        f"data.train_batch_size={options.prompts}",
        f"actor_rollout_ref.actor.ppo_mini_batch_size={options.prompts}",
        f"actor_rollout_ref.rollout.n={options.group}",
        f"trainer.total_training_steps={options.steps}",
        f"trainer.default_local_dir={out}/checkpoints",
        "trainer.logger=[console,file]",
        f"+rollbox.records_dir={out}/records",
        f"hydra.run.dir={out}/hydra",
    ]


def _tail(log: Path) -> str:
    with log.open(encoding="utf-8", errors="replace") as lines:
        return "".join(deque(lines, maxlen=_SHOWN_LINES))
