"""Many samples side by side: nothing lost, faults counted, an outage stops the run."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from rollbox.rewards.trajectory import score_trajectory
from rollbox.rollout.data import load_samples
from rollbox.rollout.engines.huggingface import HuggingFaceEngine
from rollbox.rollout.loop import RolloutLimits, RolloutLoop
from rollbox.rollout.parsers import get_parser
from rollbox.rollout.report.chart import save_chart
from rollbox.rollout.report.summary import summarize
from rollbox.rollout.report.table import summary_table
from rollbox.rollout.report.text import trajectory_text
from rollbox.rollout.runner import InfraGuard, run_samples
from rollbox.schemas.errors import ConfigError, EngineError, InfraError
from rollbox.schemas.generation import SamplingParams
from rollbox.schemas.trajectory import Sample, Trajectory
from rollbox.tools.calculator import CalculatorTool


def samples(n: int) -> list[Sample]:
    return [
        Sample(
            sample_id=str(i),
            data_source="openai/gsm8k",
            messages=[{"role": "user", "content": f"What is {i}?"}],
            ground_truth=str(i),
        )
        for i in range(n)
    ]


def make_loop(engine: Any, max_tokens: int = 128) -> RolloutLoop:
    sampling = SamplingParams(max_tokens=max_tokens, seed=0)
    return RolloutLoop(engine, {"calculator": CalculatorTool()}, get_parser("hermes"), sampling, RolloutLimits())


async def test_every_sample_comes_back_once_from_a_real_model(random_model_dir: Path) -> None:
    async with HuggingFaceEngine(random_model_dir) as engine:
        loop = make_loop(engine, max_tokens=16)
        done = [t async for t in run_samples(loop, samples(20), score_trajectory, concurrency=7)]
    assert sorted(int(trajectory.sample.sample_id) for trajectory in done) == list(range(20))
    assert all(trajectory.rewards is not None for trajectory in done)
    for trajectory in done:
        assert Trajectory.model_validate_json(trajectory.model_dump_json()) == trajectory


async def test_an_outage_stops_the_run_with_its_cause(scripted_engine: Any) -> None:
    loop = make_loop(scripted_engine([EngineError("connection refused")] * 50))
    with pytest.raises(InfraError, match=r"8 of 8 trajectories failed.*Last error: connection refused"):
        async for _ in run_samples(loop, samples(50), score_trajectory, concurrency=4, guard=InfraGuard()):
            pass


async def test_a_few_faults_are_masked_and_counted(scripted_engine: Any) -> None:
    loop = make_loop(scripted_engine([*["#### 0"] * 9, EngineError("one hiccup")]))
    done = [t async for t in run_samples(loop, samples(10), score_trajectory, concurrency=1)]
    summary = summarize(done, wall_s=1.0)
    assert (summary.trajectories, summary.scored, summary.masked) == (10, 9, 1)
    assert summary.accuracy == pytest.approx(1 / 9)


async def test_leaving_early_cancels_what_runs(scripted_engine: Any) -> None:
    loop = make_loop(scripted_engine(["#### 1"] * 10))
    running = run_samples(loop, samples(10), score_trajectory, concurrency=5)
    async for _ in running:
        break
    await running.aclose()
    assert len(asyncio.all_tasks()) == 1


async def test_the_report_shows_the_run(scripted_engine: Any, tmp_path: Path) -> None:
    call = '<tool_call>\n{"name": "calculator", "arguments": {"expression": "%s"}}\n</tool_call>'
    loop = make_loop(scripted_engine([call % "1 / 0", call % "1 + 1", "#### 0"]))
    done = [t async for t in run_samples(loop, samples(1), score_trajectory)]
    summary = summarize(done, wall_s=2.0)
    assert summary.tools["calculator"].calls == 2
    assert summary.error_kinds == {"user_code": 1}
    assert summary.accuracy == 1.0
    assert summary.generated_tokens == sum(done[0].response_mask)
    save_chart(done, summary, tmp_path / "chart.png", "a run")
    assert (tmp_path / "chart.png").read_bytes().startswith(b"\x89PNG")
    assert summary_table(summary, "a run").row_count >= 8
    text = trajectory_text(done[0], lambda ids: loop.engine.tokenizer.decode(ids, skip_special_tokens=False))
    for expected in ("mask 1 | #### 0<|im_end|>", "mask 0 : <tool_response>", "user_code", "correct"):
        assert expected in text


def test_gsm8k_and_generic_lines_are_read(tmp_path: Path) -> None:
    file = tmp_path / "data.jsonl"
    file.write_text(
        '{"question": "a?", "answer": "x #### 1"}\n\n'
        '{"prompt": [{"role": "user", "content": "b?"}], "ground_truth": 2, "data_source": "mine", "id": "b"}\n'
    )
    first, second = load_samples(file)
    assert (first.data_source, first.ground_truth, first.sample_id) == ("openai/gsm8k", "x #### 1", "1")
    assert (second.data_source, second.ground_truth, second.sample_id) == ("mine", "2", "b")
    assert len(load_samples(file, limit=1)) == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no samples"),
        ("nonsense", ":1: not JSON"),
        ("[1]", ":1: must be an object"),
        ('{"question": "a?"}', ":1: has neither 'ground_truth' nor 'answer'"),
        ('{"answer": "1"}', ":1: has none of 'messages', 'prompt', 'question'"),
        ('{"question": 5, "answer": "1"}', ":1: messages"),
    ],
)
def test_wrong_lines_are_named(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "data.jsonl"
    file.write_text(text)
    with pytest.raises(ConfigError) as error:
        load_samples(file)
    assert said in str(error.value)
