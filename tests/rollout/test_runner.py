"""Many samples side by side: nothing lost, faults counted, an outage stops the run."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from rollbox.rewards.trajectory import score_trajectory
from rollbox.rollout.data import find_data, load_samples
from rollbox.rollout.engines.huggingface import HuggingFaceEngine
from rollbox.rollout.loop import RolloutLimits, RolloutLoop
from rollbox.rollout.parsers import get_parser
from rollbox.rollout.report.chart import save_chart
from rollbox.rollout.report.summary import pass_at_k
from rollbox.rollout.report.table import summary_table
from rollbox.rollout.report.tally import summarize
from rollbox.rollout.report.text import trajectory_text
from rollbox.rollout.runner import InfraGuard, run_tasks, tasks_of
from rollbox.schemas.errors import ConfigError, EngineError, InfraError
from rollbox.schemas.generation import SamplingParams
from rollbox.schemas.trajectory import Rewards, Sample, StopReason, Trajectory
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
        done = [t async for t in run_tasks(loop, tasks_of(samples(20)), score_trajectory, concurrency=7)]
    assert sorted(int(trajectory.sample.sample_id) for trajectory in done) == list(range(20))
    assert all(trajectory.rewards is not None for trajectory in done)
    for trajectory in done:
        assert Trajectory.model_validate_json(trajectory.model_dump_json()) == trajectory


async def test_an_outage_stops_the_run_with_its_cause(scripted_engine: Any) -> None:
    loop = make_loop(scripted_engine([EngineError("connection refused")] * 50))
    with pytest.raises(InfraError, match=r"8 of 8 trajectories failed.*Last error: connection refused"):
        async for _ in run_tasks(loop, tasks_of(samples(50)), score_trajectory, concurrency=4, guard=InfraGuard()):
            pass


async def collect(running: AsyncIterator[Trajectory], into: list[Trajectory]) -> None:
    async for trajectory in running:
        into.append(trajectory)  # noqa: PERF401 - what came before an exception is what is asked for


async def test_an_outage_loses_nothing_that_is_finished(scripted_engine: Any) -> None:
    script = ["#### 0", EngineError("gone"), EngineError("gone"), "#### 0"] * 4
    running = run_tasks(make_loop(scripted_engine(script)), tasks_of(samples(16)), score_trajectory, concurrency=16)
    done: list[Trajectory] = []
    # All end in one step of the event loop or two, some right, some by a fault.
    with pytest.raises(InfraError, match=r"\d+ of \d+ trajectories failed.*Last error: gone"):
        await collect(running, done)
    assert sum(t.infra_failed for t in done) >= 4
    assert len(done) >= 8


async def test_what_cannot_be_scored_loses_nothing_that_is_finished(scripted_engine: Any) -> None:
    together = asyncio.Barrier(6)

    async def score(trajectory: Trajectory) -> Rewards | None:
        await together.wait()
        if trajectory.sample.sample_id == "1":
            raise ConfigError("no such judge")
        return await score_trajectory(trajectory)

    running = run_tasks(make_loop(scripted_engine(["#### 0"] * 6)), tasks_of(samples(6)), score, concurrency=6)
    done: list[Trajectory] = []
    with pytest.raises(ConfigError, match="no such judge"):
        await collect(running, done)
    assert sorted(trajectory.sample.sample_id for trajectory in done) == ["0", "2", "3", "4", "5"]


async def test_a_fault_of_the_model_is_not_named_as_the_cause_of_an_outage(scripted_engine: Any) -> None:
    class Noting:
        """A loop some of whose trajectories end with an error that is not ours."""

        def __init__(self, loop: RolloutLoop) -> None:
            self._loop = loop

        async def run(self, *args: Any, **options: Any) -> Trajectory:
            trajectory = await self._loop.run(*args, **options)
            if not trajectory.infra_failed:
                trajectory.error = "the model wrote an image's token itself"
            return trajectory

    loop: Any = Noting(make_loop(scripted_engine([*[EngineError("gone")] * 7, "#### 0"])))
    with pytest.raises(InfraError, match="Last error: gone"):
        async for _ in run_tasks(loop, tasks_of(samples(8)), score_trajectory, concurrency=1):
            pass


async def test_a_few_faults_are_masked_and_counted(scripted_engine: Any) -> None:
    loop = make_loop(scripted_engine([*["#### 0"] * 9, EngineError("one hiccup")]))
    done = [t async for t in run_tasks(loop, tasks_of(samples(10)), score_trajectory, concurrency=1)]
    summary = summarize(done, wall_s=1.0)
    assert (summary.trajectories, summary.scored, summary.masked) == (10, 9, 1)
    assert summary.accuracy == pytest.approx(1 / 9)


async def test_leaving_early_cancels_what_runs(scripted_engine: Any) -> None:
    loop = make_loop(scripted_engine(["#### 1"] * 10))
    running = run_tasks(loop, tasks_of(samples(10)), score_trajectory, concurrency=5)
    async for _ in running:
        break
    await running.aclose()
    assert len(asyncio.all_tasks()) == 1


async def test_the_report_shows_the_run(scripted_engine: Any, tmp_path: Path) -> None:
    call = '<tool_call>\n{"name": "calculator", "arguments": {"expression": "%s"}}\n</tool_call>'
    loop = make_loop(scripted_engine([call % "1 / 0", call % "1 + 1", "#### 0"]))
    done = [t async for t in run_tasks(loop, tasks_of(samples(1)), score_trajectory)]
    summary = summarize(done, wall_s=2.0)
    assert summary.tools["calculator"].calls == 2
    assert summary.error_kinds == {"user_code": 1}
    assert summary.accuracy == 1.0
    assert summary.generated_tokens == sum(done[0].response_mask)
    save_chart(summary, tmp_path / "chart.png", "a run")
    assert (tmp_path / "chart.png").read_bytes().startswith(b"\x89PNG")
    assert summary_table(summary, "a run").row_count >= 8
    text = trajectory_text(done[0], lambda ids: loop.engine.tokenizer.decode(ids, skip_special_tokens=False))
    for expected in ("mask 1 | #### 0<|im_end|>", "mask 0 : <tool_response>", "user_code", "correct"):
        assert expected in text


async def test_without_an_outcome_nothing_is_right_or_wrong(scripted_engine: Any, tmp_path: Path) -> None:
    async def by_length(trajectory: Trajectory) -> Rewards | None:
        judged = trajectory.sample.sample_id == "1"
        return Rewards(total=2.0, parts={"length": 2.0}, correct=True if judged else None)

    done = [t async for t in run_tasks(make_loop(scripted_engine(["#### 0"] * 3)), tasks_of(samples(3)), by_length)]
    summary = summarize([t for t in done if t.sample.sample_id != "1"], wall_s=1.0)
    assert (summary.scored, summary.accuracy, summary.mean_reward, summary.pass_at_k) == (2, None, 2.0, {})
    assert summary.turns == {"unscored": {1: 2}}
    summary = summarize(done, wall_s=1.0)
    assert (summary.scored, summary.accuracy, summary.pass_at_k) == (3, 1.0, {1: 1.0})
    save_chart(summary, tmp_path / "chart.png", "a run")


def test_names_are_shown_as_they_are(tmp_path: Path) -> None:
    """Square brackets are markup to rich, and dollars to matplotlib."""
    title = "rollout of m[/b] on $\\frac$"
    summary = summarize([], wall_s=1.0).model_copy(update={"reward_parts": {"[/x] $a_$": 1.0}, "mean_reward": 1.0})
    console = Console(file=io.StringIO(), width=120)
    console.print(summary_table(summary, title))
    shown = console.file.getvalue()
    assert title in shown
    assert "[/x] $a_$ +1.000" in shown
    save_chart(summary, tmp_path / "chart.png", title)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_turns", 0),
        ("max_calls_per_turn", 0),
        ("max_response_tokens", -1),
        ("max_invalid_turns", 0),
        ("trajectory_timeout_s", 0.0),
        ("trajectory_timeout_s", -3.0),
        ("trajectory_timeout_s", float("nan")),
    ],
)
def test_limits_that_leave_room_for_nothing_are_refused(field: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"^{field}: must be .*got {value}"):
        RolloutLimits(**{field: value})


def test_pass_at_k_is_the_unbiased_estimate() -> None:
    assert pass_at_k([]) == {}
    assert pass_at_k([(4, 1), (4, 4)]) == {1: pytest.approx((1 / 4 + 1) / 2), 2: pytest.approx((1 / 2 + 1) / 2), 4: 1.0}
    # A question with fewer trajectories than k says nothing about k.
    assert pass_at_k([(3, 0), (1, 1)]) == {1: 0.5, 2: 0.0, 3: 0.0}


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


def test_verls_parquet_layout_is_read(tmp_path: Path) -> None:
    rows = [
        {
            "data_source": "openai/gsm8k",
            "prompt": [{"role": "user", "content": f"{i}?"}],
            "ability": "math",
            "reward_model": {"style": "rule", "ground_truth": str(i)},
            "extra_info": {"index": i, "tools_kwargs": tools_kwargs},
        }
        for i, tools_kwargs in enumerate([{"a": {"create_kwargs": {"x": 1}}, "b": None}, {"a": None, "b": None}])
    ]
    path = tmp_path / "train.parquet"
    pq.write_table(pa.Table.from_pylist(rows), path)
    first, second = load_samples(path)
    assert (first.sample_id, first.ground_truth, first.messages) == ("1", "0", [{"role": "user", "content": "0?"}])
    assert (first.tools_kwargs, second.tools_kwargs) == ({"a": {"create_kwargs": {"x": 1}}}, {})
    assert first.extra_info["index"] == 0
    assert len(load_samples(path, limit=1)) == 1
    path.write_bytes(b"PAR1 nonsense")
    with pytest.raises(ConfigError, match=r"train.parquet: cannot be read"):
        load_samples(path)


def test_data_is_found_by_path_or_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "gsm8k_test.jsonl"
    file.write_text("")
    assert find_data(str(file)) == file
    monkeypatch.delenv("ROLLBOX_DATA", raising=False)
    with pytest.raises(ConfigError, match="ROLLBOX_DATA names no folder"):
        find_data("gsm8k")
    monkeypatch.setenv("ROLLBOX_DATA", str(tmp_path))
    assert find_data("gsm8k") == file
    with pytest.raises(ConfigError, match=f"'math' is not a file, nor in {tmp_path}"):
        find_data("math")


def test_two_samples_of_one_id_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "data.jsonl"
    file.write_text('{"question": "a?", "answer": "1", "id": 7}\n{"question": "b?", "answer": "1", "id": "7"}\n')
    with pytest.raises(ConfigError, match="two samples have the id '7'"):
        load_samples(file)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no samples"),
        ("nonsense", ":1: not JSON"),
        ("[1]", ":1: must be an object"),
        ('{"question": "a?"}', ":1: has neither 'ground_truth' nor 'answer'"),
        ('{"answer": "1"}', ":1: has none of 'messages', 'prompt', 'question'"),
        ('{"question": 5, "answer": "1"}', ":1: messages"),
        ('{"messages": [{"content": "?"}], "answer": "1"}', ":1: messages.0.role: must be a text"),
        ('{"messages": [{"role": 7, "content": "?"}], "answer": "1"}', ":1: messages.0.role: must be a text"),
        ('{"messages": [{"role": "user", "content": 5}], "answer": "1"}', ":1: messages.0.content: must be a text"),
        ('{"messages": [{"role": "user", "content": [5]}], "answer": "1"}', ":1: messages.0.content.0: must be a part"),
        ('{"question": "a", "answer": "1", "extra_info": {"tools_kwargs": [1]}}', ":1: tools_kwargs: "),
        ('{"question": "a", "answer": "1", "extra_info": {"tools_kwargs": "x"}}', ":1: tools_kwargs: "),
        ('{"question": "a\\ud800", "answer": "1"}', ":1: holds what JSON in UTF-8 cannot"),
        ('{"question": "a", "answer": "1", "extra_info": {"x": "\\udfff"}}', ":1: holds what JSON in UTF-8 cannot"),
    ],
)
def test_wrong_lines_are_named(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "data.jsonl"
    file.write_text(text)
    with pytest.raises(ConfigError) as error:
        load_samples(file)
    assert said in str(error.value)


def test_a_line_ends_with_a_newline_and_with_nothing_else(tmp_path: Path) -> None:
    texts = ["a\u2028b", "a\u2029b", "a\x85b", "a\x7fb"]
    file = tmp_path / "data.jsonl"
    rows = [json.dumps({"question": text, "answer": "1"}, ensure_ascii=False) for text in texts]
    file.write_bytes("\r\n".join(rows).encode() + b"\n")
    assert [sample.messages[0]["content"] for sample in load_samples(file)] == texts


def test_no_more_is_read_than_is_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "data.jsonl"
    file.write_text('{"question": "a", "answer": "1"}\n' * 2 + "not JSON\n")
    with pytest.raises(ConfigError, match=":3: not JSON"):
        load_samples(file)
    assert len(load_samples(file, limit=1)) == 1


def test_bytes_in_parquet_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "data.parquet"
    pq.write_table(pa.Table.from_pylist([{"question": "a", "answer": "1", "extra_info": {"x": b"\xff"}}]), path)
    with pytest.raises(ConfigError, match="row 0: holds what JSON in UTF-8 cannot"):
        load_samples(path)


def test_a_name_that_is_too_long_for_a_file_is_not_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROLLBOX_DATA", str(tmp_path))
    with pytest.raises(ConfigError, match="is not a file"):
        find_data("x" * 300)


async def test_a_prompt_that_does_not_fit_is_no_answer(scripted_engine: Any) -> None:
    """The last message of the prompt may be an assistant's, as in a conversation that is to be gone on with."""
    messages = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "#### 7"}]
    sample = Sample(sample_id="s", data_source="openai/gsm8k", messages=messages, ground_truth="7")
    trajectory = await make_loop(scripted_engine(["#### 7"], max_context=8)).run(sample)
    assert (trajectory.stop_reason, trajectory.answer_text) == (StopReason.CONTEXT_FULL, "")
    rewards = await score_trajectory(trajectory)
    assert rewards is not None
    assert not rewards.correct


async def test_a_prompt_that_cannot_be_rendered_is_named(scripted_engine: Any) -> None:
    [sample] = samples(1)
    loop = make_loop(scripted_engine([]))
    with pytest.raises(ConfigError, match="sample '0': chat template: cannot render"):
        await loop.run(sample.model_copy(update={"messages": [{"content": "?"}]}))


async def test_a_scoring_fault_masks_the_sample_and_is_counted(scripted_engine: Any) -> None:
    loop = make_loop(scripted_engine(["#### 0"] * 10))

    async def fails_for_one(trajectory: Trajectory) -> Rewards | None:
        if trajectory.sample.sample_id == "3":
            raise InfraError("the judge is gone")
        return await score_trajectory(trajectory)

    done = [t async for t in run_tasks(loop, tasks_of(samples(10)), fails_for_one, concurrency=1)]
    summary = summarize(done, wall_s=1.0)
    assert (summary.scored, summary.masked) == (9, 1)
    [masked] = [t for t in done if t.infra_failed]
    assert (masked.rewards, masked.error) == (None, "scoring failed: the judge is gone")
