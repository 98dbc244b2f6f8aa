"""`rollbox diagnose`: every planted fault is flagged, and a healthy run is not."""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rollbox.schemas.errors import ConfigError
from rollbox.training.diagnose.checks import diagnose
from rollbox.training.diagnose.logs import Series, read_logs

STEPS = 80
Curve = Callable[[float], float]
# What a healthy run looks like, over its progress from 0 to 1.
HEALTHY: dict[str, tuple[Curve, float]] = {
    "critic/score/mean": (lambda t: 0.2 + 0.5 * t, 0.05),
    "actor/entropy": (lambda t: 0.9 - 0.4 * t, 0.03),
    "actor/ppo_kl": (lambda t: 0.001 + 0.001 * t, 0.0005),
    "actor/kl_loss": (lambda t: 0.002 + 0.015 * t, 0.002),
    "actor/grad_norm": (lambda t: 0.5, 0.1),
    "response_length/mean": (lambda t: 400 + 300 * t, 25.0),
    "response_length/clip_ratio": (lambda t: 0.02 + 0.05 * t, 0.01),
    "critic/advantages/max": (lambda t: 1.8, 0.1),
    "critic/advantages/min": (lambda t: -1.8, 0.1),
    "rollbox/reward/format/mean": (lambda t: 0.6 + 0.35 * t, 0.03),
    "rollbox/reward/void_turn/mean": (lambda t: 0.03, 0.01),
    "rollbox/tool/python/calls_total": (lambda t: 120 + 40 * t, 10.0),
    "rollbox/tool/python/errors_total": (lambda t: 25 - 10 * t, 3.0),
    "rollbox/group/zero_std_share/mean": (lambda t: 0.2 + 0.3 * t, 0.04),
}
VALIDATION = ("val-core/openai/gsm8k/acc/mean@1", lambda t: 0.3 + 0.3 * t, 0.01)
EVERY = 5


def planted(
    seed: int, faults: dict[str, tuple[Curve, float]], validation: Curve | None = None, steps: int = STEPS
) -> Series:
    chance = random.Random(seed)
    series: Series = {}
    for name, (curve, noise) in {**HEALTHY, **faults}.items():
        series[name] = [(step, curve(step / steps) + chance.gauss(0, noise)) for step in range(1, steps + 1)]
    name, curve, noise = VALIDATION
    curve = validation or curve
    series[name] = [(step, curve(step / steps) + chance.gauss(0, noise)) for step in range(EVERY, steps + 1, EVERY)]
    return series


def faults_of(series: Series) -> list[str]:
    return [flag.fault for flag in diagnose(series)]


@pytest.mark.parametrize("seed", range(40))
def test_a_healthy_run_is_not_flagged(seed: int) -> None:
    assert diagnose(planted(seed, {})) == []


@pytest.mark.parametrize("steps", [1, 5, 12])
def test_a_short_run_is_not_flagged(steps: int) -> None:
    for seed in range(10):
        assert diagnose(planted(seed, {}, steps=steps)) == []


PLANTED: dict[str, tuple[dict[str, tuple[Curve, float]], Curve | None]] = {
    "reward rises, held-out accuracy does not": ({}, lambda t: 0.45 + 0.2 * t if t < 0.5 else 0.75 - 0.4 * t),
    "entropy collapses": ({"actor/entropy": (lambda t: 0.9 * math.exp(-6 * t), 0.01)}, None),
    "entropy explodes": ({"actor/entropy": (lambda t: 0.4 + 3 * t * t, 0.05)}, None),
    "answers are cut by the length limit": ({"response_length/clip_ratio": (lambda t: 0.05 + 0.6 * t, 0.03)}, None),
    "answers shrink to nothing": ({"response_length/mean": (lambda t: 420 * math.exp(-3 * t), 10.0)}, None),
    "KL runs away": ({"actor/kl_loss": (lambda t: 0.002 * math.exp(7 * t), 0.001)}, None),
    "the format collapses": ({"rollbox/reward/format/mean": (lambda t: 0.9 if t < 0.6 else 0.2, 0.03)}, None),
    "tool calls fail more and more": ({"rollbox/tool/python/errors_total": (lambda t: 15 + 70 * t, 4.0)}, None),
    "void turns grow": ({"rollbox/reward/void_turn/mean": (lambda t: 0.02 + 0.4 * t, 0.02)}, None),
    "most groups have no signal": ({"rollbox/group/zero_std_share/mean": (lambda t: 0.2 + 0.75 * t, 0.03)}, None),
    "no group has a signal": (
        {
            "critic/advantages/max": (lambda t: 1.8 if t < 0.7 else 0.0, 0.0),
            "critic/advantages/min": (lambda t: -1.8 if t < 0.7 else 0.0, 0.0),
        },
        None,
    ),
    "a metric is not a number": ({"actor/grad_norm": (lambda t: 0.5 if t < 0.9 else math.nan, 0.1)}, None),
}


@pytest.mark.parametrize("fault", PLANTED)
@pytest.mark.parametrize("seed", range(5))
def test_a_planted_fault_is_flagged_and_nothing_else(fault: str, seed: int) -> None:
    faults, validation = PLANTED[fault]
    assert faults_of(planted(seed, faults, validation)) == [fault]


def test_growth_without_gain_is_flagged() -> None:
    lengthy = {"response_length/mean": (lambda t: 300 + 900 * t, 20.0)}
    found = faults_of(planted(0, {**lengthy, "critic/score/mean": (lambda t: 0.4, 0.02)}, lambda t: 0.5 - 0.03 * t))
    assert found == ["answers grow without becoming better"]


def test_a_flag_holds_evidence_and_remedy() -> None:
    faults, validation = PLANTED["KL runs away"]
    [flag] = diagnose(planted(0, faults, validation))
    assert "actor/kl_loss: 0.00" in flag.evidence
    assert "steps 1-80" in flag.evidence
    assert "kl_loss_coef" in flag.remedy


def rows(series: Series) -> dict[int, dict[str, float]]:
    found: dict[int, dict[str, float]] = {}
    for name, values in series.items():
        for step, value in values:
            found.setdefault(step, {})[name] = value
    return found


def write_console(series: Series, file: Path) -> None:
    """As verl prints it under Ray, colours and numpy's numbers included."""
    lines = ["starting\n", "\x1b[36m(TaskRunner pid=7)\x1b[0m nothing of interest: step:x - a:b\n"]
    for step, metrics in sorted(rows(series).items()):
        items = [f"{name}:np.float64({value!r})" if i % 2 else f"{name}:{value!r}" for i, (name, value) in
                 enumerate(metrics.items())]  # fmt: skip
        lines.append(f"\x1b[36m(TaskRunner pid=7)\x1b[0m step:{step} - " + " - ".join(items) + "\n")
    file.write_text("".join(lines))


def write_jsonl(series: Series, file: Path) -> None:
    file.write_text("".join(json.dumps({"step": s, "data": m}) + "\n" for s, m in sorted(rows(series).items())))


@pytest.mark.parametrize(("write", "name"), [(write_console, "train.log"), (write_jsonl, "run.jsonl")])
def test_logs_are_read_back(write: Callable[[Series, Path], None], name: str, tmp_path: Path) -> None:
    series = planted(0, {})
    write(series, tmp_path / name)
    assert read_logs(tmp_path / name) == series
    assert read_logs(tmp_path) == series


def test_tensorboards_events_are_read_back(tmp_path: Path) -> None:
    tensorboard = pytest.importorskip("torch.utils.tensorboard")
    writer = tensorboard.SummaryWriter(str(tmp_path))
    series = planted(0, {}, steps=20)
    for name, values in series.items():
        for step, value in values:
            writer.add_scalar(name, value, step)
    writer.close()
    found = read_logs(tmp_path)
    assert found.keys() == series.keys()
    assert found["actor/entropy"][3][1] == pytest.approx(series["actor/entropy"][3][1], rel=1e-5)


def test_a_file_without_metrics_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text("hello\n")
    with pytest.raises(ConfigError, match="holds no metrics; it takes verl's console output"):
        read_logs(tmp_path)


def test_numbers_of_any_size_and_broken_lines_are_no_end_of_it(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    lines = [
        '{"step": 1, "data": {"big": ' + "9" * 400 + ', "x": 1}}',
        '{"step": 2, "data": ' + '{"a":' * 100_000,
        '{"step": true, "data": {"x": 7}}',
        '{"step": 3, "data": {"x": 2, "none": null}}',
        '{"step": 4, "data": {"x":',
    ]
    file.write_text("\n".join(lines))
    series = read_logs(file)
    assert series["x"] == [(1, 1.0), (3, 2.0)]
    assert series["big"] == [(1, math.inf)]
    assert [flag.evidence for flag in diagnose(series)] == ["big at step 1, and 1 more"]


def test_a_short_run_is_said_to_be_short(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "data": {"x": 1}}\n')
    command = [sys.executable, "-m", "rollbox.cli", "diagnose", str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1] == "what changes over time is judged from 8 steps on"


def test_the_command(tmp_path: Path) -> None:
    def run(fault: str | None) -> subprocess.CompletedProcess[str]:
        faults, validation = PLANTED[fault] if fault else ({}, None)
        write_jsonl(planted(0, faults, validation), tmp_path / "run.jsonl")
        command = [sys.executable, "-m", "rollbox.cli", "diagnose", str(tmp_path)]
        return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)

    clean = run(None)
    assert (clean.returncode, clean.stdout) == (0, "15 metrics over 80 steps: 0 flagged\n")
    hacked = run("reward rises, held-out accuracy does not")
    assert hacked.returncode == 1
    assert "val-core/openai/gsm8k/acc/mean@1" in hacked.stdout
    assert "remedy: read the best-paid trajectories" in hacked.stdout
