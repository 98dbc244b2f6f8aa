"""The demo's main job, with the taught model, the real tools and the real sandbox."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from rollbox.demo.gsm8k import SAMPLE_FILE, few_shot_messages, few_shot_samples
from rollbox.demo.job import DemoOptions, _job, run_demo, run_demo_gsm8k
from rollbox.demo.teach import ensure_demo_model
from rollbox.schemas.errors import ConfigError
from rollbox.schemas.trajectory import Trajectory
from rollbox.tools.calculator import CalculatorTool


def console() -> tuple[Console, io.StringIO]:
    shown = io.StringIO()
    return Console(file=shown, width=120), shown


@pytest.mark.parametrize("run", [run_demo, run_demo_gsm8k])
async def test_a_missing_library_is_said(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ConfigError, match=r"demo: .*; install it with: pip install 'rollbox\[demo\]'"):
        await run(DemoOptions(out=tmp_path), console()[0])


@pytest.mark.timeout(600)  # the first run on a machine teaches the model
async def test_the_taught_model_calls_tools_and_answers(tmp_path: Path) -> None:
    terminal, shown = console()
    ensure_demo_model()
    summary = await run_demo(DemoOptions(n=100, out=tmp_path), terminal)
    assert summary.trajectories == summary.scored == 100
    # 92 to 94 % were seen; far below that something is broken, not unlucky.
    assert summary.accuracy is not None
    assert summary.accuracy >= 0.8
    assert summary.tools["calculator"].calls >= 50
    assert summary.tools["python"].calls >= 15
    assert summary.run_s > 0
    assert summary.generate_s > 0
    for expected in ("accuracy", "calls of python", "error kinds", "time split"):
        assert expected in shown.getvalue()

    lines = (tmp_path / "trajectories.jsonl").read_text().splitlines()
    trajectories = [Trajectory.model_validate_json(line) for line in lines]
    assert len(trajectories) == 100
    for trajectory in trajectories:
        assert trajectory.rewards is not None
        assert trajectory.rewards.total == pytest.approx(sum(trajectory.rewards.parts.values()))
        assert sum(trajectory.response_mask) > 0
    assert json.loads((tmp_path / "summary.json").read_text())["trajectories"] == 100
    assert (tmp_path / "chart.png").read_bytes().startswith(b"\x89PNG")
    assert "mask 0 :" in (tmp_path / "trajectory.txt").read_text()


async def test_a_model_and_data_of_ones_own(random_model_dir: Path, tmp_path: Path) -> None:
    data = tmp_path / "questions.jsonl"
    data.write_text('{"question": "What is 1 + 1?", "answer": "#### 2"}\n')
    options = DemoOptions(model=str(random_model_dir), data=data, out=tmp_path / "run", max_tokens=8)
    summary = await run_demo(options, console()[0])
    assert (summary.trajectories, summary.scored) == (1, 1)


async def test_gsm8k_runs_the_same_loop(random_model_dir: Path, tmp_path: Path) -> None:
    options = DemoOptions(model=str(random_model_dir), n=2, out=tmp_path, max_tokens=8)
    # The tiny context cannot hold the worked examples: nothing is scored 0 for that, the run says so and stops.
    summary = await run_demo_gsm8k(options, console()[0])
    assert (summary.trajectories, summary.scored, summary.stop_reasons) == (2, 2, {"context_full": 2})


async def test_wrong_options_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--tokenizer: needed with an address"):
        await run_demo(DemoOptions(model="http://127.0.0.1:9", out=tmp_path), console()[0])
    with pytest.raises(ConfigError, match="is not a model directory"):
        await run_demo(DemoOptions(model=str(tmp_path), out=tmp_path), console()[0])
    unscored = tmp_path / "data.jsonl"
    unscored.write_text('{"question": "a?", "answer": "1", "data_source": "unknown/source"}\n')
    with pytest.raises(ConfigError, match=r"no score for 'unknown/source'; there are: .*openai/gsm8k"):
        await run_demo(DemoOptions(model=str(tmp_path), data=unscored, out=tmp_path), console()[0])


def files_with(text: bytes, folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and text in path.read_bytes()]


async def test_the_settings_of_a_run_hold_no_address(tmp_path: Path, random_model_dir: Path) -> None:
    """It may hold a password; and no engine is there, so the run ends once they are written."""
    url = "http://user:hu5h@127.0.0.1:9"
    options = DemoOptions(model=url, tokenizer=random_model_dir, n=1, out=tmp_path)
    with pytest.raises(ConfigError, match=r"no usable answer from http://127.0.0.1:9/v1/models") as raised:
        await run_demo(options, console()[0])
    assert "hu5h" not in str(raised.value)
    assert not files_with(b"hu5h", tmp_path)
    assert _job(options, "t", []).settings()["model"] == "completions"


async def test_worked_examples_are_right() -> None:
    calculator = CalculatorTool()
    messages = few_shot_messages()
    calls = [
        (message["tool_calls"][0]["function"], messages[i + 1]["content"])
        for i, message in enumerate(messages)
        if "tool_calls" in message
    ]
    assert len(calls) == 4
    for function, result in calls:
        response, _, _ = await calculator.execute("i", function["arguments"])
        assert response.text == result


def test_the_shipped_questions_are_read() -> None:
    samples = few_shot_samples(SAMPLE_FILE)
    assert len(samples) == 40
    assert all(sample.messages[-1]["role"] == "user" for sample in samples)
