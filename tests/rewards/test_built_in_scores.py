"""The score functions that Rollbox brings, on published examples and on what models really write."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollbox.rewards import competition_math, multiple_choice, search_qa
from rollbox.rewards import format as answer_format
from rollbox.rewards.answers import tagged, without_thinking
from rollbox.rewards.math_answer import expected_answer
from rollbox.rewards.math_answer import score as math_score
from rollbox.rewards.math_process import MathPool, MathWorker
from rollbox.rewards.registry import REGISTRY, ScoreEntry, load_built_in
from rollbox.rewards.rubric import parsed_score
from rollbox.rewards.sandbox_access import ScoringSandbox
from rollbox.sandbox.client import Sandbox
from rollbox.schemas.errors import ConfigError, InfraError

load_built_in()
ENTRIES = [entry for entry in REGISTRY.entries() if entry.function.__module__.startswith("rollbox.")]


@pytest.fixture(scope="module", autouse=True)
def one_sandbox_for_all() -> Iterator[None]:
    """The shared server lives as long as somebody uses it."""
    with asyncio.Runner() as runner:
        holder = Sandbox.embedded()
        runner.run(holder.__aenter__())
        yield
        runner.run(holder.__aexit__(None, None, None))


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.pattern)
async def test_fixtures_score_as_they_say(entry: ScoreEntry) -> None:
    async with ScoringSandbox() as sandbox:
        sandbox.use()
        await _check_fixtures(entry)


async def _check_fixtures(entry: ScoreEntry) -> None:
    for fixture in entry.fixtures:
        found = await entry(fixture.solution_str, fixture.ground_truth, fixture.extra_info)
        assert found.value == pytest.approx(fixture.expected, abs=1e-9), fixture


# Answers of MATH's published solutions against other ways of writing them.
@pytest.mark.parametrize(
    ("answer", "truth", "value"),
    [
        (r"\boxed{\frac{3}{4}}", r"\frac34", 1.0),
        (r"\boxed{0.75}", r"\frac{3}{4}", 1.0),
        (r"\boxed{2\sqrt{3}}", r"\sqrt{12}", 1.0),
        (r"\boxed{x^2+2x+1}", r"(x+1)^2", 1.0),
        (r"\boxed{1,2,3}", r"3,2,1", 1.0),
        (r"\boxed{(-\infty, 2) \cup (2, \infty)}", r"(-\infty,2)\cup(2,\infty)", 1.0),
        (r"\boxed{\begin{pmatrix} 1 \\ 2 \end{pmatrix}}", r"\begin{pmatrix}1\\2\end{pmatrix}", 1.0),
        (r"\boxed{10{,}000}", "10000", 1.0),
        (r"\boxed{10}", r"10\%", 1.0),
        (r"\boxed{10\%}", "10", 1.0),
        (r"\boxed{11\%}", "10", 0.0),
        (r"Answer: $\frac{3}{4}$", r"\frac{3}{4}", 1.0),
        (r"\boxed{3} and then \boxed{4}", "3", 0.0),
        (r"<think>\boxed{3}</think> I do not know", "3", 0.0),
        (r"three", "3", 0.0),
        (r"\boxed{}", "3", 0.0),
        (r"\boxed{" + "1+" * 2000 + "1}", "3", 0.0),
        (r"\boxed{\frac{1}{0}}", "3", 0.0),
        ("\\boxed{\u4e09}", "3", 0.0),
    ],
)
async def test_math(answer: str, truth: str, value: float) -> None:
    assert (await math_score(answer, truth)).value == value


def test_the_ground_truth_can_be_a_whole_solution() -> None:
    assert expected_answer(r"We add: $2+2=4$. So the sum is $\boxed{4}$.") == "4"
    with pytest.raises(ConfigError, match="ground_truth: must hold an answer"):
        expected_answer(" $$ ")


async def test_an_answer_that_takes_forever_counts_as_wrong() -> None:
    pool = MathPool(1)
    try:
        towers = [r"9^{9^{9^{9^{9}}}}", r"(x+y+z+w)^{300}", r"123456789^{987654321}!"]
        for tower in towers:
            assert await pool.equal("x^2 + 1", tower, cpu_s=1.0) in (None, False)
        assert await pool.equal(r"\frac{1}{2}", "0.5") is True  # by a new process, where the old one was ended
    finally:
        pool.close()


async def test_an_answer_that_is_too_costly_is_logged_so(monkeypatch: pytest.MonkeyPatch) -> None:
    async def too_costly(self: MathPool, gold: str, answer: str) -> None:
        return None

    monkeypatch.setattr(MathPool, "equal", too_costly)
    found = await math_score(r"\boxed{x}", "y")
    assert (found.value, found.logged) == (0.0, {"too_costly": 1.0})


async def test_a_worker_that_burns_its_time_is_ended_by_it() -> None:
    worker = MathWorker()
    try:
        assert await asyncio.to_thread(worker.equal, "1", "(x+y)^{4}", 1e-6, 60.0) is None
        assert worker._process.returncode == -signal.SIGPROF
    finally:
        worker.close()


async def test_a_worker_that_is_killed_is_our_failure() -> None:
    worker = MathWorker()
    try:
        os.kill(worker._process.pid, signal.SIGKILL)
        with pytest.raises(InfraError, match=r"ended with code -9|is gone"):
            await asyncio.to_thread(worker.equal, "1", "2", 5.0, 60.0)
    finally:
        worker.close()


async def test_a_busy_machine_is_our_failure_and_not_the_answers() -> None:
    worker = MathWorker()
    try:
        os.kill(worker._process.pid, signal.SIGSTOP)
        with pytest.raises(InfraError, match="the machine is too busy"):
            await asyncio.to_thread(worker.equal, "1", "2", 5.0, 0.05)
    finally:
        worker.close()


# AIME 2024 I, problems 1 and 4, and DAPO's prompt: "The last line … should be of the form Answer: $Answer".
@pytest.mark.parametrize(
    ("text", "truth", "value"),
    [
        ("The walk takes 204 minutes.\nAnswer: 204", "204", 1.0),
        ("**Answer:** 116", "116", 1.0),
        ("Answer: $116$", "116", 1.0),
        ("Answer: 116.", "116", 1.0),
        ("Answer: 116 minutes", "116", 1.0),
        ("Answer: 0116", "116", 1.0),
        ("Answer: 1\nAnswer: 116", "116", 1.0),
        ("Answer: 116\nAnswer: 1", "116", 0.0),
        (r"The answer is \boxed{116}", "116", 1.0),
        ("<think>Answer: 116</think>", "116", 0.0),
        ("116", "116", 0.0),
        ("Answer: 1, 2, 3, 116", "116", 0.0),
        (r"Answer: \boxed{m+n}", "m + n", 1.0),
        ("", "116", 0.0),
    ],
)
def test_competition_math(text: str, truth: str, value: float) -> None:
    assert competition_math.score(text, truth) == value


GOLD = '{"target": ["Barack Obama", "Obama"]}'


@pytest.mark.parametrize(
    ("text", "truth", "em", "strict"),
    [
        ("<answer>Barack Obama</answer>", GOLD, 1.0, 1.0),
        ("<answer>the OBAMA.</answer>", GOLD, 1.0, 1.0),
        ("<answer>Obama</answer> wait <answer>Bush</answer>", GOLD, 0.0, 0.0),
        ("<answer>Bush <answer>Obama</answer>", GOLD, 0.0, 0.0),
        ("<answer>Obama", GOLD, 0.0, 0.0),
        ("<answer>Obama</answer>" * 11, GOLD, 0.25, 0.0),
        ("<answer></answer>", '["A"]', 0.0, 0.0),
        ("<answer>the</answer>", '["A"]', 0.0, 0.0),
        ("<answer>A</answer>", '["A"]', 1.0, 1.0),
        ("<answer>5</answer>", "-5", 1.0, 0.0),
        ("<answer>314</answer>", "3.14", 1.0, 0.0),
        ("<answer>São Paulo</answer>", "Sao Paulo", 0.0, 1.0),
        ("<answer>1990–1994</answer>", "1990-1994", 0.0, 1.0),
        ("<answer>7</answer>", "7", 1.0, 1.0),
        ("<answer>1.50</answer>", "1.50", 1.0, 1.0),
        ("<answer>1.5</answer>", '{"target": [1.50]}', 0.0, 0.0),
        ("<answer>1e5</answer>", "1e5", 1.0, 1.0),
        ("<answer>null</answer>", "null", 1.0, 1.0),
        ("<answer>True</answer>", "true", 1.0, 1.0),
        ("<answer>x</answer>", "[" * 100_000, 0.0, 0.0),
    ],
)
def test_search_answers(text: str, truth: str, em: float, strict: float) -> None:
    assert search_qa.exact_match(text, truth).value == em
    assert search_qa.strict_match(text, truth).value == strict


def test_f1_is_squads() -> None:
    found = search_qa.f1("<answer>Barack Hussein Obama II</answer>", GOLD)
    assert (found.value, found.correct) == (pytest.approx(2 * 2 / (4 + 2)), False)
    assert search_qa.f1("no tags", GOLD).value == 0.0


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("Answer: C", "C"),
        ("The correct answer is (B).", "B"),
        ("The answer is **D**", "D"),
        (r"\boxed{A}", "A"),
        (r"\boxed{\text{A}}", "A"),
        ("<answer>(C) 42 km</answer>", "C"),
        ("C", "C"),
        ("C. Because it is so.", "C"),
        ("A. wrong\nB. right\nSo the answer is B.", "B"),
        ("A: one by one. The correct option is: C", "C"),
        (r"\boxed{\textbf{(C)}}", "C"),
        (r"\boxed{\mathrm{C}}", "C"),
        ("The answer is A or B.", None),
        ("The answer is (A) / (B)", None),
        ("The answer is a matter of taste.", None),
        ("I think A is wrong and B too.", None),
        ("<think>The answer is C.</think>", None),
        ("The answer is Dublin.", None),
        ("", None),
    ],
)
def test_the_chosen_letter(text: str, letter: str | None) -> None:
    assert multiple_choice.chosen(text) == letter


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("<think>a</think><answer>b</answer>", 1.0),
        ("<think>\na\n</think>\n\n<answer> b </answer>\n", 1.0),
        ("a</think><answer>b</answer>", 1.0),
        ("<answer>b</answer>", 0.0),
        ("<think>a</think>", 0.0),
        ("<think>a</think><answer></answer>", 0.0),
        ("<think>a</think><answer>b</answer> more", 0.0),
        ("<think>a</think><think>a</think><answer>b</answer>", 0.0),
        ("<think>a<answer>x</answer></think><answer>b</answer>", 0.0),
        ("<answer>b</answer><think>a</think>", 0.0),
    ],
)
def test_think_then_answer(text: str, value: float) -> None:
    assert answer_format.think_answer(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "answer is" + " " * 500_000,
        "answer is" + " :" * 250_000,
        "<think>" + "</think><answer></answer>" * 50_000,
        "score 5" + " " * 500_000 + "x",
        "score 5/5" + " ." * 250_000 + "x",
        "\n" * 500_000,
    ],
    ids=["said", "said with colons", "tags", "judge", "judge of a scale", "lines"],
)
def test_the_time_grows_with_the_length_and_not_with_its_square(text: str) -> None:
    for function in (multiple_choice.chosen, answer_format.think_answer, lambda said: parsed_score(said, 0, 10)):
        function(text)  # by the square it is more than the time of a test


@settings(deadline=None)
@given(st.lists(st.sampled_from(["<answer>", "</answer>", "<think>", "</think>", "a", " "]), max_size=12).map("".join))
def test_tags_are_read_as_the_usual_expression_reads_them(text: str) -> None:
    import re

    assert tagged(text, "answer") == re.findall(r"<answer>(.*?)</answer>", text, re.DOTALL)
    assert without_thinking(text) == re.sub(r"<think>.*?</think>", "", text, flags=re.DOTALL).rpartition("</think>")[2]


@settings(deadline=None)
@given(st.text(max_size=300), st.sampled_from([search_qa.exact_match, search_qa.f1, search_qa.strict_match]))
def test_any_text_scores_between_0_and_1(text: str, function: Any) -> None:
    assert 0.0 <= function(f"<answer>{text}</answer>", GOLD).value <= 1.0
    assert multiple_choice.score(text, "A") in (0.0, 1.0)
    assert competition_math.score(text, "7") in (0.0, 1.0)
