"""`rollbox rollout`'s job: complete, resumable, and the same run only with the same settings."""

from __future__ import annotations

import asyncio
import io
import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from rich.console import Console

from rollbox.rollout.engines.huggingface import HuggingFaceEngine
from rollbox.rollout.job import RolloutJob, run_job
from rollbox.rollout.loop import RolloutLimits
from rollbox.rollout.report.parquet import schema
from rollbox.rollout.runner import InfraGuard, tasks_of
from rollbox.schemas.errors import ConfigError, EngineError, InfraError
from rollbox.schemas.generation import SamplingParams
from rollbox.schemas.trajectory import Sample, Trajectory
from rollbox.tools_config import find_tools

MakeJob = Callable[..., RolloutJob]
CLOSING_TOOL = """
from pathlib import Path
from rollbox.tools.calculator import CalculatorTool

class ClosingTool(CalculatorTool):
    async def aclose(self):
        Path({!r}).touch()
"""


@pytest.fixture
def make_job(tmp_path: Path) -> MakeJob:
    def make(questions: int = 4, **fields: Any) -> RolloutJob:
        samples = [
            Sample(
                sample_id=f"q{i}",
                data_source="openai/gsm8k",
                messages=[{"role": "user", "content": f"What is {i}?"}],
                ground_truth=str(i),
                extra_info={"index": i},
            )
            for i in range(questions)
        ]
        job = RolloutJob(
            "a run",
            "m",
            samples,
            find_tools("calculator"),
            tmp_path / "run",
            sampling=SamplingParams(max_tokens=8, seed=1),
        )
        return replace(job, **fields)

    return make


def shown() -> Console:
    return Console(file=io.StringIO(), width=120)


def lines(job: RolloutJob, name: str = "trajectories.jsonl") -> list[Trajectory]:
    return [Trajectory.model_validate_json(line) for line in (job.out_dir / name).read_text().splitlines()]


class FailingEngine:
    """The local engine, which fails for chosen calls."""

    def __init__(self, engine: HuggingFaceEngine, fails: Callable[[str, int], bool]) -> None:
        self._engine, self._fails = engine, fails
        self.calls: Counter[str] = Counter()

    async def __aenter__(self) -> Any:
        await self._engine.__aenter__()
        self.tokenizer, self.max_context = self._engine.tokenizer, self._engine.max_context
        return self

    async def __aexit__(self, *args: Any) -> None:
        await self._engine.__aexit__(*args)

    async def generate(self, request_id: str, prompt_ids: list[int], sampling: SamplingParams) -> Any:
        self.calls[request_id] += 1
        if self._fails(request_id, self.calls[request_id]):
            raise EngineError("connection refused")
        return await self._engine.generate(request_id, prompt_ids, sampling)


@pytest.fixture
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rollbox.rollout.runner._BACKOFF_S", 0.0)


async def test_every_question_is_rolled_out_n_times(make_job: MakeJob, random_model_dir: Path) -> None:
    job = make_job(n=3)
    summary = await run_job(job, HuggingFaceEngine(random_model_dir), shown())
    done = lines(job)
    assert sorted(t.trajectory_id for t in done) == sorted(f"q{i}.{k}" for i in range(4) for k in range(3))
    assert (summary.trajectories, summary.questions, list(summary.pass_at_k)) == (12, 4, [1, 2, 3])
    # A group's samples differ, and would be drawn the same again.
    groups = {i: {tuple(t.response_ids) for t in done if t.sample.sample_id == f"q{i}"} for i in range(4)}
    assert all(len(group) == 3 for group in groups.values())
    again = replace(job, out_dir=job.out_dir.with_name("again"))
    await run_job(again, HuggingFaceEngine(random_model_dir), shown())
    assert {t.trajectory_id: t.response_ids for t in lines(again)} == {t.trajectory_id: t.response_ids for t in done}


async def test_the_table_holds_what_the_lines_hold(make_job: MakeJob, random_model_dir: Path) -> None:
    job = make_job(n=2)
    await run_job(job, HuggingFaceEngine(random_model_dir), shown())
    table = pq.read_table(job.out_dir / "trajectories.parquet")
    assert table.schema.equals(schema())
    rows = {row["trajectory_id"]: row for row in table.to_pylist()}
    for trajectory in lines(job):
        row = rows.pop(trajectory.trajectory_id)
        assert row["response_ids"] == trajectory.response_ids
        assert row["response_mask"] == trajectory.response_mask
        assert row["response_logprobs"] == pytest.approx(trajectory.response_logprobs)
        assert [tuple(span.values()) for span in row["spans"]] == [
            tuple(span.model_dump().values()) for span in trajectory.spans
        ]
        assert json.loads(row["messages"]) == trajectory.messages
        assert json.loads(row["extra_info"]) == trajectory.sample.extra_info
        assert trajectory.rewards is not None
        assert (row["reward"], dict(row["reward_parts"])) == (trajectory.rewards.total, trajectory.rewards.parts)
    assert rows == {}
    for name in ("summary.json", "chart.png", "trajectory.txt", "run.json", "tokenizer/tokenizer.json"):
        assert (job.out_dir / name).stat().st_size > 0, name


async def test_a_stopped_run_goes_on_without_repeating(make_job: MakeJob, random_model_dir: Path) -> None:
    job = make_job(questions=6)
    await run_job(job, HuggingFaceEngine(random_model_dir), shown())
    path = job.out_dir / "trajectories.jsonl"
    whole = path.read_bytes().splitlines(keepends=True)
    kept = [json.loads(line)["trajectory_id"] for line in whole[:3]]
    path.write_bytes(b"".join(whole[:3]) + whole[3][:200])  # killed in the middle of a line
    engine = FailingEngine(HuggingFaceEngine(random_model_dir), lambda *_: False)
    summary = await run_job(job, engine, shown())
    assert sorted(t.trajectory_id for t in lines(job)) == [f"q{i}.0" for i in range(6)]
    assert not set(kept) & set(engine.calls)
    assert summary.trajectories == 6
    assert await run_job(job, FailingEngine(HuggingFaceEngine(random_model_dir), lambda *_: True), shown())


async def test_no_file_of_a_run_holds_a_password(make_job: MakeJob, random_model_dir: Path) -> None:
    job = make_job(questions=1, title="rollout of http://user:hu5h@127.0.0.1:9 on data")
    terminal = shown()
    await run_job(job, HuggingFaceEngine(random_model_dir), terminal)
    assert "http://127.0.0.1:9" in terminal.file.getvalue()  # type: ignore[attr-defined]
    assert "hu5h" not in terminal.file.getvalue()  # type: ignore[attr-defined]
    assert not [path for path in job.out_dir.rglob("*") if path.is_file() and b"hu5h" in path.read_bytes()]


async def test_a_killed_process_loses_nothing_that_was_finished(
    make_job: MakeJob, random_model_dir: Path, tmp_path: Path
) -> None:
    data, out = tmp_path / "data.jsonl", tmp_path / "out"
    data.write_text("".join(f'{{"question": "What is {i}?", "answer": "{i}"}}\n' for i in range(40)))
    options = ["--model", str(random_model_dir), "--data", str(data), "--out", str(out), "--tools", "calculator"]
    options += ["--seed", "1", "--max-tokens", "48", "--concurrency", "2"]
    command = [sys.executable, "-m", "rollbox.cli.main", "rollout", *options]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    while len(_finished(out)) < 5:
        assert process.poll() is None
        await asyncio.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = _finished(out)
    ended = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert ended.returncode == 0, ended.stderr
    after = _finished(out)
    assert after[: len(before)] == before
    assert sorted(json.loads(line)["trajectory_id"] for line in after) == sorted(f"{i}.0" for i in range(1, 41))
    assert f"{len(before)} of 40 trajectories are in" in ended.stdout.replace("\n", "")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
async def test_a_signal_ends_the_run_in_order(number: int, code: int, random_model_dir: Path, tmp_path: Path) -> None:
    """Schedulers send SIGTERM; a tool's session on a server is to be given back then too."""
    data, out, released = tmp_path / "data.jsonl", tmp_path / "out", tmp_path / "released"
    data.write_text("".join(f'{{"question": "What is {i}?", "answer": "{i}"}}\n' for i in range(4000)))
    (tmp_path / "closing_tool.py").write_text(CLOSING_TOOL.format(str(released)))
    (tmp_path / "tools.yaml").write_text("tools: [{class_name: closing_tool.ClosingTool, config: {type: native}}]\n")
    options = ["--model", str(random_model_dir), "--data", str(data), "--out", str(out), "--max-tokens", "16"]
    # A process in the background of a shell ignores SIGINT, and so would its children.
    start = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    start += "from rollbox.cli.main import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", start, "rollout", *options, "--tools", str(tmp_path / "tools.yaml")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    while len(_finished(out)) < 3:
        assert process.poll() is None, process.communicate()[1]
        await asyncio.sleep(0.01)
    process.send_signal(number)
    said, errors = process.communicate()
    assert process.returncode == code, errors
    assert "the same command goes on with what is in" in said
    assert "Traceback" not in errors
    assert released.exists()
    assert json.loads(_finished(out)[-1])


def _finished(out: Path) -> list[str]:
    path = out / "trajectories.jsonl"
    text = path.read_text() if os.path.exists(path) else ""
    return text[: text.rfind("\n") + 1].splitlines()


@pytest.mark.usefixtures("without_pauses")
async def test_failures_of_ours_are_tried_again_and_listed(make_job: MakeJob, random_model_dir: Path) -> None:
    def fails(trajectory_id: str, call: int) -> bool:
        return trajectory_id == "q3.0" or (trajectory_id == "q1.0" and call < 3)

    job = make_job(questions=8, attempts=3)
    engine = FailingEngine(HuggingFaceEngine(random_model_dir), fails)
    summary = await run_job(job, engine, shown())
    assert (engine.calls["q1.0"], engine.calls["q3.0"], engine.calls["q0.0"]) == (3, 3, 1)
    assert (summary.scored, summary.masked, summary.failed) == (7, 1, {"infra": ["q3.0"]})
    assert [t.trajectory_id for t in lines(job, "failures.jsonl")] == ["q3.0"]
    assert "q3.0" not in {t.trajectory_id for t in lines(job)}
    # The next part of the run tries what failed, and nothing else.
    healed = FailingEngine(HuggingFaceEngine(random_model_dir), lambda *_: False)
    summary = await run_job(job, healed, shown())
    assert dict(healed.calls) == {"q3.0": 1}
    assert (summary.scored, summary.masked) == (8, 0)
    assert lines(job, "failures.jsonl") == []


@pytest.mark.usefixtures("without_pauses")
async def test_an_outage_stops_the_run_and_keeps_what_was_done(make_job: MakeJob, random_model_dir: Path) -> None:
    job = make_job(questions=12, attempts=2, concurrency=1, guard=InfraGuard(max_rate=0.3, min_finished=4))
    down = {f"q{i}.0" for i in range(4, 12)}
    engine = FailingEngine(HuggingFaceEngine(random_model_dir), lambda name, _: name in down)
    with pytest.raises(InfraError, match=r"2 of 6 trajectories failed.*connection refused"):
        await run_job(job, engine, shown())
    assert len(lines(job)) == 4


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"n": 2}, "n was 1, now 2"),
        ({"model": "other"}, "model was 'm', now 'other'"),
        ({"limits": RolloutLimits(max_turns=2)}, "limits.max_turns was 8, now 2"),
        ({"sampling": SamplingParams(max_tokens=9, seed=1)}, "sampling.max_tokens was 8, now 9"),
    ],
)
async def test_another_run_is_not_gone_on_with(
    make_job: MakeJob, random_model_dir: Path, change: dict[str, Any], named: str
) -> None:
    job = make_job(questions=1)
    await run_job(job, HuggingFaceEngine(random_model_dir), shown())
    other = replace(job, **change)
    with pytest.raises(ConfigError) as caught:
        await run_job(other, HuggingFaceEngine(random_model_dir), shown())
    assert named in str(caught.value)
    assert "--restart" in str(caught.value)
    summary = await run_job(replace(other, restart=True), HuggingFaceEngine(random_model_dir), shown())
    assert summary.trajectories == other.n


async def test_other_weights_or_words_under_the_same_name_are_another_run(
    make_job: MakeJob, random_model_dir: Path, tmp_path: Path
) -> None:
    model_dir = tmp_path / "model"
    shutil.copytree(random_model_dir, model_dir)
    job = make_job(questions=1)
    await run_job(job, HuggingFaceEngine(model_dir), shown())
    before = (job.out_dir / "trajectories.jsonl").read_bytes()
    assert (await run_job(job, HuggingFaceEngine(random_model_dir), shown())).trajectories == 1
    weights, template = model_dir / "model.safetensors", model_dir / "chat_template.jinja"
    kept = weights.read_bytes()
    weights.write_bytes(kept[:-1] + bytes([kept[-1] ^ 1]))
    with pytest.raises(ConfigError, match=r"other settings \(model was '[0-9a-f]+', now '[0-9a-f]+'"):
        await run_job(job, HuggingFaceEngine(model_dir), shown())
    weights.write_bytes(kept)
    template.write_text(template.read_text() + "{# another #}")
    with pytest.raises(ConfigError, match=r"other settings \(tokenizer was "):
        await run_job(job, HuggingFaceEngine(model_dir), shown())
    assert (job.out_dir / "trajectories.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    ("change", "named"),
    [({"parser": "nope"}, "parser: no tool-call format 'nope'"), ({"template_check": "no"}, "'no'")],
)
async def test_a_wrong_option_is_found_before_the_model_is_loaded(
    make_job: MakeJob, tmp_path: Path, change: dict[str, Any], named: str
) -> None:
    job = make_job(questions=1, **change)
    with pytest.raises(ConfigError, match=named):
        await run_job(job, HuggingFaceEngine(tmp_path / "no-model"), shown())
    assert not job.out_dir.exists()


async def test_the_output_directory_may_have_any_name(
    make_job: MakeJob, random_model_dir: Path, tmp_path: Path
) -> None:
    job = make_job(questions=1, out_dir=tmp_path / "run[/b] $x_")
    console = shown()
    for _ in range(2):
        await run_job(job, HuggingFaceEngine(random_model_dir), console)
    said = console.file.getvalue().replace("\n", "")
    assert f"1 of 1 trajectories are in {job.out_dir}/ already" in said


async def test_files_that_are_no_run_are_refused(make_job: MakeJob, random_model_dir: Path) -> None:
    job = make_job(questions=1)
    await run_job(job, HuggingFaceEngine(random_model_dir), shown())
    path = job.out_dir / "trajectories.jsonl"
    path.write_text('{"not": "a trajectory"}\n')
    with pytest.raises(ConfigError, match=r"trajectories.jsonl:1: is no trajectory"):
        await run_job(job, HuggingFaceEngine(random_model_dir), shown())
    (job.out_dir / "run.json").write_text("{")
    with pytest.raises(ConfigError, match=r"no readable run.json"):
        await run_job(job, HuggingFaceEngine(random_model_dir), shown())


def test_seeds_follow_from_the_runs_seed_and_the_name(make_job: MakeJob) -> None:
    samples = make_job(questions=3).samples
    tasks = tasks_of(samples, 2, seed=5)
    assert [task.trajectory_id for task in tasks] == ["q0.0", "q0.1", "q1.0", "q1.1", "q2.0", "q2.1"]
    assert len({task.seed for task in tasks}) == 6
    assert tasks_of(samples[1:], 2, seed=5) == tasks[2:]
    assert {task.seed for task in tasks_of(samples, 2)} == {None}


async def test_a_part_that_only_the_group_tells_is_said_to_be_0(
    make_job: MakeJob, random_model_dir: Path, tmp_path: Path
) -> None:
    file = tmp_path / "rewards.yaml"
    file.write_text("parts: {outcome: , cheap: {kind: call_cost, optimal_calls: group}}\n")
    job = make_job(rewards_file=file)
    console = shown()
    await run_job(job, HuggingFaceEngine(random_model_dir), console)
    said = " ".join(console.file.getvalue().split())  # type: ignore[attr-defined]
    assert "reward part cheap: 0 in this run" in said
    assert "rollbox rescore" in said


async def test_a_rewards_file_is_part_of_the_run(make_job: MakeJob, random_model_dir: Path, tmp_path: Path) -> None:
    file = tmp_path / "rewards.yaml"
    file.write_text("parts: {outcome: {weight: 2.0}, void_turn: }\n")
    job = make_job(rewards_file=file)
    await run_job(job, HuggingFaceEngine(random_model_dir), shown())
    for trajectory in lines(job):
        assert trajectory.rewards is not None
        assert list(trajectory.rewards.parts) == ["outcome", "void_turn"]
    file.write_text("parts: {outcome: {weight: 1.0}, void_turn: }\n")
    with pytest.raises(ConfigError, match="rewards"):
        await run_job(job, HuggingFaceEngine(random_model_dir), shown())
    with pytest.raises(ConfigError, match=r"gone\.yaml: cannot be read"):
        await run_job(replace(job, rewards_file=tmp_path / "gone.yaml"), HuggingFaceEngine(random_model_dir), shown())
