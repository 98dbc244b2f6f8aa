"""Dry runs and checks of score functions: what they must find, and what they must not."""

from __future__ import annotations

import io
import itertools
import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from rollbox.rewards.compose import RewardComposition
from rollbox.rewards.dry_run import DryRun, distribution, dry_run
from rollbox.rewards.registry import REGISTRY, Fixture, ScoreRegistry, load_built_in
from rollbox.rewards.trajectory import trajectory_of_text
from rollbox.rewards.verify import verify
from rollbox.rollout.report.reward_report import distribution_table, remarks
from rollbox.schemas.errors import ConfigError
from rollbox.schemas.reward_config import RewardConfig
from rollbox.schemas.trajectory import Trajectory
from rollbox.schemas.validation import validated

from .trajectories import sample

ROOT = Path(__file__).parents[2]
DATA = ROOT / "demo" / "data" / "gsm8k_sample.jsonl"


@pytest.fixture(scope="module", autouse=True)
def functions() -> None:
    count = itertools.count()

    @REGISTRY.score("test/random", inline=True)
    def random(solution_str: str, ground_truth: str, extra_info: dict[str, Any]) -> float:
        return float(next(count))

    @REGISTRY.score("test/fails_for_4", inline=True)
    def fails(solution_str: str, ground_truth: str, extra_info: dict[str, Any]) -> float:
        return 1 / (int(solution_str.rsplit()[-1]) - 4)


def answers(number: int = 10) -> list[Trajectory]:
    return [trajectory_of_text(sample(), f"#### {i}", f"s.{i}") for i in range(number)]


def rewards_of(**parts: Any) -> RewardComposition:
    return RewardComposition(validated(RewardConfig, {"parts": parts}, ""))


async def found_by(rewards: RewardComposition, baseline: RewardComposition | None = None) -> DryRun:
    return await dry_run(answers(), rewards, baseline)


async def test_distributions_and_times_by_source_and_part() -> None:
    found = await found_by(rewards_of(outcome=None, format=None))
    assert found.scored == 10
    assert found.values["openai/gsm8k", "outcome"] == [0.0] * 5 + [1.0] + [0.0] * 4
    assert found.distributions()["openai/gsm8k", "format"].verdict == "constant: it teaches nothing"
    assert {part: len(times) for part, times in found.part_ms.items()} == {"outcome": 10, "format": 10}
    assert (found.unsteady, found.failures, found.disagreements) == ({}, {}, {})


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ([1.0] * 7, ""),
        ([1.0] * 8, "constant: it teaches nothing"),
        ([1.0] * 19 + [0.0], "saturated at 1"),
        ([0.0] * 19 + [1.0], "saturated at 0"),
        ([0.0] * 10 + [1.0] * 10, ""),
    ],
)
def test_a_part_without_signal_is_named(values: list[float], verdict: str) -> None:
    assert distribution(values).verdict == verdict


async def test_chance_is_found_by_scoring_twice() -> None:
    found = await found_by(rewards_of(outcome={"function": "test/random"}))
    assert len(found.unsteady) == 10


async def test_failures_are_counted_and_the_rest_is_scored() -> None:
    found = await found_by(rewards_of(outcome={"function": "test/fails_for_4"}))
    assert found.scored == 9
    assert list(found.failures) == ["s.4"]
    assert "ZeroDivisionError" in found.failures["s.4"]


async def test_a_baseline_that_scores_otherwise_is_shown() -> None:
    found = await found_by(rewards_of(outcome=None), rewards_of(outcome=None, format={"weight": 0.5}))
    assert len(found.disagreements) == 10
    assert found.disagreements["s.5"] == (1.5, 1.0)
    said = "\n".join(remarks(found, baseline=True))
    assert "baseline: 10 of 10 (100%) are scored otherwise" in said
    console = Console(file=io.StringIO(), width=120)
    console.print(distribution_table(found))
    assert "10 responses scored, 0 could not be" in console.file.getvalue()  # type: ignore[attr-defined]


async def test_a_sample_that_cannot_be_scored_stops_it() -> None:
    with pytest.raises(ConfigError, match="no score for 'nope'"):
        await dry_run([trajectory_of_text(sample(data_source="nope"), "5")], rewards_of(outcome=None))


def fixtures(*pairs: tuple[str, float]) -> list[Fixture]:
    return [Fixture(text, "5", reward) for text, reward in pairs]


async def problems(function: Any, *pairs: tuple[str, float]) -> dict[str, str]:
    registry = ScoreRegistry()
    registry.score("mine", inline=True, fixtures=fixtures(*pairs))(function)
    return {finding.check: finding.problem async for finding in verify(registry.entries()) if finding.problem}


async def test_a_good_function_passes() -> None:
    def good(solution_str: str, ground_truth: str, extra_info: dict[str, Any]) -> float:
        return float(solution_str == f"is {ground_truth}")

    assert await problems(good, ("is 5", 1.0), ("is 6", 0.0)) == {}


async def test_a_function_that_hangs_is_said_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rollbox.rewards.verify._MAX_S", 0.1)
    registry, may_end = ScoreRegistry(), threading.Event()

    @registry.score("mine", fixtures=fixtures(("is 5", 1.0), ("is 6", 0.0)))
    def hangs_at_nothing(solution_str: str, ground_truth: str, extra_info: dict[str, Any]) -> float:
        if not solution_str:
            may_end.wait(60)
        return float(solution_str == f"is {ground_truth}")

    try:
        found = {finding.check: finding.problem async for finding in verify(registry.entries())}
    finally:
        may_end.set()
    assert found["empty"] == "did not end within 0.1 s"
    assert found["fixture 0"] == ""


async def test_what_a_policy_would_find_is_found_first() -> None:
    def generous(solution_str: str, ground_truth: str, extra_info: dict[str, Any]) -> float:
        return 1.0 if ground_truth in solution_str or not solution_str.strip() else 0.0

    found = await problems(generous, ("5", 1.0), ("6", 0.0))
    assert set(found) == {"empty", "blank", "many numbers"}
    assert "earns the full 1.0 for an answer that says nothing" in found["empty"]


async def test_a_function_that_raises_or_draws_lots_or_is_wrong() -> None:
    count = itertools.count()

    def last_word(solution_str: str, ground_truth: str, extra_info: dict[str, Any]) -> float:
        return float(solution_str.split()[-1] == ground_truth)

    def lots(solution_str: str, ground_truth: str, extra_info: dict[str, Any]) -> float:
        return next(count) * 1e-9

    assert set(await problems(last_word, ("5", 1.0), ("6", 0.0))) == {"empty", "blank"}
    assert "not deterministic" in (await problems(lots, ("5", 1.0), ("6", 0.0)))["empty"]
    assert "expected 0.5, got 1.0" in (await problems(last_word, ("5", 0.5), ("6", 0.0)))["fixture 0"]
    assert "all fixtures earn the same" in (await problems(last_word, ("5", 1.0)))["a right and a wrong answer"]
    assert "it has none" in (await problems(last_word))["fixtures"]


def rollbox(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rollbox.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, cwd=cwd)


def test_the_functions_of_ours_pass_their_own_gate() -> None:
    result = rollbox("reward", "verify")
    assert (result.returncode, result.stderr) == (0, ""), result.stdout
    assert " 0 failed" in result.stdout


def test_each_function_of_ours_carries_an_answer_that_earns_all_and_one_that_earns_nothing() -> None:
    load_built_in()
    ours = [entry for entry in REGISTRY.entries() if entry.is_built_in]
    assert len(ours) > 20
    for entry in ours:
        earned = [fixture.expected for fixture in entry.fixtures]
        assert (min(earned), max(earned)) == (0.0, 1.0), entry.pattern


def test_a_users_module_is_checked(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from rollbox.rewards.registry import Fixture, score\n"
        "@score('test/cli_verify', fixtures=[Fixture('5', '5', 1.0), Fixture('', '5', 0.0)])\n"
        "def mine(solution_str, ground_truth, extra_info):\n"
        "    return 1.0\n"
    )
    result = rollbox("reward", "verify", "--module", str(tmp_path / "mine.py"))
    assert result.returncode == 1
    assert "test/cli_verify: fixture 1: expected 0.0, got 1.0" in result.stdout
    assert "1 functions" in result.stdout


def test_a_module_that_registers_nothing_does_not_pass(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def capital(solution_str, ground_truth, extra_info):\n    return 1.0\n")
    result = rollbox("reward", "verify", "--module", str(tmp_path / "mine.py"))
    assert result.returncode == 2
    assert "mine.py: registers no score function" in result.stderr


def test_dry_run_of_published_answers(tmp_path: Path) -> None:
    rows = [json.loads(line) for line in DATA.read_text(encoding="utf-8").splitlines()]
    lines = [{"response": row["answer"] if i % 2 else "#### 0"} for i, row in enumerate(rows)]
    file = tmp_path / "responses.jsonl"
    file.write_text("\n".join(json.dumps(line) for line in lines), encoding="utf-8")
    result = rollbox("reward", "dry-run", str(DATA), "--responses", str(file), cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert f"{len(rows)} responses scored, 0 could not be" in result.stdout
    assert "openai/gsm8k" in result.stdout
    assert (tmp_path / "rewards.png").read_bytes().startswith(b"\x89PNG")


def test_dry_run_shows_names_and_errors_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "data.jsonl").write_text(
        json.dumps({"id": "a[/b]", "question": "?", "answer": "1", "data_source": "mine[/i]"})
    )
    (tmp_path / "responses.jsonl").write_text(
        "".join(
            json.dumps({"id": "a[/b]", "response": text}, ensure_ascii=False) + "\n" for text in ("ok\u2028", "[/x]")
        )
    )
    (tmp_path / "mine.py").write_text(
        "from rollbox.rewards.registry import score\n\n@score('mine*')\ndef f(said, truth, extra):\n"
        "    if said == '[/x]':\n        raise ValueError('[/usr/lib] [red]x')\n    return 1.0\n"
    )
    (tmp_path / "rewards.yaml").write_text("modules: [mine.py]\nparts: {outcome: {}}\n")
    command = ("reward", "dry-run", "data.jsonl", "--responses", "responses.jsonl", "--rewards", "rewards.yaml")
    result = rollbox(*command, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "1 responses scored, 1 could not be" in result.stdout
    assert "mine[/i]" in result.stdout
    assert "failed: a[/b].1: score 'mine*'" in result.stdout
    assert "raised ValueError: [/usr/lib] [red]x" in result.stdout


@pytest.mark.parametrize(
    ("histogram", "said"),
    [
        ("gone/x.png", "histogram: gone is no directory"),
        ("x.foo", "histogram: must be a file that ends in .png (got x.foo)"),
        (".", "histogram: must be a file that ends in .png (got .)"),
    ],
)
def test_a_histogram_that_cannot_be_written_is_said_before_anything_is_scored(
    tmp_path: Path, histogram: str, said: str
) -> None:
    result = rollbox("reward", "dry-run", str(DATA), "--responses", "none", "--histogram", histogram, cwd=tmp_path)
    assert (result.returncode, result.stdout) == (2, "")
    assert said in result.stderr


def test_a_dry_run_that_scores_nothing_fails(tmp_path: Path) -> None:
    (tmp_path / "responses.jsonl").write_text('{"response": "x"}\n')
    (tmp_path / "mine.py").write_text(
        "from rollbox.rewards.registry import score\n\n@score('test/raises')\ndef f(*_):\n    raise ValueError('no')\n"
    )
    (tmp_path / "rewards.yaml").write_text("modules: [mine.py]\nparts: {outcome: {function: test/raises}}\n")
    command = ("reward", "dry-run", str(DATA), "--responses", "responses.jsonl", "--rewards", "rewards.yaml")
    result = rollbox(*command, cwd=tmp_path)
    assert result.returncode == 1
    assert "0 responses scored, 1 could not be" in result.stdout
    assert not (tmp_path / "rewards.png").exists()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "responses.jsonl:1: not JSON"),
        ("[]", "responses.jsonl:1: must be an object (got list)"),
        (
            '{"id": "gone", "response": "5"}',
            "there is no sample 'gone' in the data; there are 40, such as '1', '2', '3'",
        ),
        ('{"id": "1"}', "has none of 'response'"),
        ("", "holds no responses"),
    ],
)
def test_wrong_responses_are_named(tmp_path: Path, line: str, said: str) -> None:
    from rollbox.rollout.data import load_samples
    from rollbox.rollout.responses import read_responses

    file = tmp_path / "responses.jsonl"
    file.write_text(line)
    with pytest.raises(ConfigError) as caught:
        read_responses(file, load_samples(DATA))
    assert said in str(caught.value)
