"""Does the CPU recipe learn? Train with a learning rate and without one (the control), for several seeds; draw it.

.venv-verl/bin/rollbox data arithmetic --out runs/arithmetic --steps 420
.venv-verl/bin/python bench/learning.py --steps 40 --seeds 0 1 2 --out runs/learning
"""

from __future__ import annotations

import argparse
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from rollbox.demo.grpo import read_metrics
from rollbox.training.launch import prepare

REWARD, CORRECT = "critic/score/mean", "rollbox/reward/acc/mean"
_END = 5  # steps averaged at either end of a run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--out", type=Path, default=Path("runs/learning"))
    parser.add_argument("--png", type=Path, help="Where to draw the curves.")
    parser.add_argument("overrides", nargs="*", help="Further Hydra overrides.")
    options = parser.parse_args()
    runs: dict[str, list[dict[int, dict[str, float]]]] = {"learning": [], "control": []}
    for seed in options.seeds:
        for kind, rate in (("learning", options.lr), ("control", 0.0)):
            folder = options.out / f"{kind}-{seed}"
            runs[kind].append(train(folder, seed, rate, options.steps, options.overrides))
            print(f"{kind} seed {seed}: {describe(runs[kind][-1])}", flush=True)
    summary = {kind: [ends(run, CORRECT) for run in found] for kind, found in runs.items()}
    (options.out / "summary.json").write_text(json.dumps(summary, indent=2))
    if options.png is not None:
        draw(runs, options.png)


def train(folder: Path, seed: int, rate: float, steps: int, overrides: Sequence[str]) -> dict[int, dict[str, float]]:
    """Metrics by step; a run that is there already is read and not repeated."""
    metrics = folder / "metrics.jsonl"
    if metrics.is_file() and len(found := read_metrics(metrics)) >= steps:
        return found
    folder.mkdir(parents=True, exist_ok=True)
    given = [
        f"trainer.total_training_steps={steps}",
        f"actor_rollout_ref.actor.optim.lr={rate}",
        f"actor_rollout_ref.rollout.seed={seed}",
        f"data.seed={seed}",
        "trainer.logger=[file]",
        f"hydra.run.dir={folder}/hydra",
        *overrides,
    ]
    command, environment, _ = prepare("cpu_arithmetic", given, check=False)
    environment["VERL_FILE_LOGGER_PATH"] = str(metrics.resolve())
    with (folder / "train.log").open("wb") as log:
        subprocess.run(command, env=environment, stdout=log, stderr=subprocess.STDOUT, check=True)
    return read_metrics(metrics)


def ends(run: dict[int, dict[str, float]], name: str) -> tuple[float, float]:
    """Mean of a metric over the first and the last steps."""
    values = [run[step][name] for step in sorted(run) if name in run[step]]
    return fmean(values[:_END]), fmean(values[-_END:])


def describe(run: dict[int, dict[str, float]]) -> str:
    (first, last), (before, after) = ends(run, CORRECT), ends(run, REWARD)
    return f"correct {first:.1%} -> {last:.1%}, reward {before:.3f} -> {after:.3f}"


def draw(runs: dict[str, list[dict[int, dict[str, float]]]], file: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4))
    for kind, colour in (("learning", "tab:blue"), ("control", "tab:gray")):
        for number, run in enumerate(runs[kind]):
            steps = [step for step in sorted(run) if REWARD in run[step]]
            label = {"learning": "GRPO", "control": "learning rate 0"}[kind] if number == 0 else None
            axes.plot(steps, [run[step][REWARD] for step in steps], color=colour, alpha=0.8, label=label)
    axes.set(xlabel="step", ylabel="mean reward of the step's trajectories")
    axes.legend(loc="lower right")
    axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(file, dpi=120)


if __name__ == "__main__":
    main()
