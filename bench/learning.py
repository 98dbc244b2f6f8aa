"""Does the CPU recipe learn? Train with a learning rate and without one (the control), for several seeds; draw it.

What is drawn is the share of right answers to the same 128 held-out questions, two sampled trajectories each, every
10 steps: the questions of a training step differ from step to step, and their difficulty hides what is learnt.

.venv-verl/bin/rollbox data arithmetic --out runs/learning/data --steps 1000 --guess-share 0.5 --train-questions 4096
.venv-verl/bin/python bench/learning.py
.venv/bin/python bench/learning.py --png docs/learning.png      # draws what is there
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from rollbox.demo.grpo import read_metrics
from rollbox.training.launch import prepare, run_trainer

CORRECT = "val-core/rollbox/arithmetic/acc/mean@2"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--lr", type=float, default=2e-4)
    parser.add_argument("--out", type=Path, default=Path("runs/learning"))
    parser.add_argument("--png", type=Path, help="Where to draw the curves.")
    parser.add_argument("overrides", nargs="*", help="Further Hydra overrides.")
    options = parser.parse_args()
    runs: dict[str, list[dict[int, dict[str, float]]]] = {"learning": [], "control": []}
    for seed in options.seeds:
        for kind, rate in (("learning", options.lr), ("control", 0.0)):
            folder = options.out / f"{kind}-{seed}"
            runs[kind].append(train(folder, seed, rate, options))
            print(f"{kind} seed {seed}: {describe(runs[kind][-1])}", flush=True)
    summary = {kind: [curve(run) for run in found] for kind, found in runs.items()}
    (options.out / "summary.json").write_text(json.dumps(summary, indent=2))
    if options.png is not None:
        draw(runs, options.png)


def train(folder: Path, seed: int, rate: float, options: argparse.Namespace) -> dict[int, dict[str, float]]:
    """Metrics by step; a run that is there already is read and not repeated."""
    metrics = folder / "metrics.jsonl"
    if metrics.is_file() and max(found := read_metrics(metrics), default=0) >= options.steps:
        return found
    folder.mkdir(parents=True, exist_ok=True)
    given = [
        f"trainer.total_training_steps={options.steps}",
        f"actor_rollout_ref.actor.optim.lr={rate}",
        f"actor_rollout_ref.rollout.seed={seed}",
        f"data.seed={seed}",
        "trainer.logger=[file]",
        f"hydra.run.dir={folder}/hydra",
        *options.overrides,
    ]
    command, environment, _ = prepare("cpu_learning", given, check=False)
    environment["VERL_FILE_LOGGER_PATH"] = str(metrics.resolve())
    if code := run_trainer(command, environment, folder / "train.log"):
        raise SystemExit(f"the trainer ended with exit code {code}; see {folder / 'train.log'}")
    return read_metrics(metrics)


def curve(run: dict[int, dict[str, float]]) -> list[tuple[int, float]]:
    """(step, share of right answers) of each validation."""
    return [(step, run[step][CORRECT]) for step in sorted(run) if CORRECT in run[step]]


def describe(run: dict[int, dict[str, float]]) -> str:
    return ", ".join(f"{step}: {share:.1%}" for step, share in curve(run))


def draw(runs: dict[str, list[dict[int, dict[str, float]]]], file: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4))
    for kind, colour in (("learning", "tab:blue"), ("control", "tab:gray")):
        for number, run in enumerate(runs[kind]):
            label = {"learning": "GRPO", "control": "learning rate 0"}[kind] if number == 0 else None
            axes.plot(*zip(*curve(run), strict=True), color=colour, alpha=0.8, marker="o", label=label)
    axes.set(xlabel="step", ylabel="right answers to held-out questions")
    axes.legend(loc="center right")
    axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(file, dpi=120)


if __name__ == "__main__":
    main()
