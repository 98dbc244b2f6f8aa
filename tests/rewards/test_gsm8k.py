"""GSM8K: every published answer parses, and the final number of the model's own words decides."""

from __future__ import annotations

import json
import os
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollbox.rewards import format as answer_format
from rollbox.rewards.answers import final_number, numbers_in
from rollbox.rewards.gsm8k import parse_ground_truth, score
from rollbox.schemas.errors import ConfigError

ROOT = Path(__file__).parents[2]
SAMPLE_FILE = ROOT / "demo" / "data" / "gsm8k_sample.jsonl"
FULL_FILE = Path(os.environ.get("GSM8K_TEST", ROOT.parent / "shared" / "data" / "gsm8k_test.jsonl"))


@pytest.mark.parametrize("file", [SAMPLE_FILE, FULL_FILE], ids=["sample", "whole test file"])
def test_every_answer_of_the_file_parses_and_scores(file: Path) -> None:
    if file == FULL_FILE and not file.exists():
        pytest.skip("set GSM8K_TEST to the whole test file to check all 1319 answers")
    answers = [json.loads(line)["answer"] for line in file.read_text(encoding="utf-8").splitlines()]
    assert len(answers) == (1319 if file == FULL_FILE else 40)
    for answer in answers:
        stated = answer.rpartition("#### ")[2].replace(",", "")
        assert parse_ground_truth(answer) == Fraction(stated)
        assert score(answer, answer) == 1.0
        assert score(f"so the answer is #### {Fraction(stated) + 1}", answer) == 0.0


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("The answer is 18.", 18),
        ("#### 18", 18),
        ("#### $1,234.50", Fraction("1234.5")),
        (r"so \boxed{42} it is", 42),
        (r"\boxed{\frac{1}{2}} then \boxed{7}", 7),
        (r"\boxed{ {5} }", 5),
        ("#### 3\nwait, no\n#### 4", 4),
        (r"#### 3 but \boxed{5}", 5),
        (r"\boxed{5} but #### 3", 3),
        ("#### none", None),
        ("no number here", None),
        ("", None),
        ("I have 3/4 of it", Fraction(3, 4)),
        ("−7", -7),
        ("5 - 3", 3),
        ("x = -3", -3),
        ("- 5 apples", 5),
        ("1/0", None),
        ("#### 1e3", 1000),
        (r"\boxed{70{,}000}", 70_000),
        (r"\boxed{70,\!000}", 70_000),
        (r"\boxed{70\,000}", 70_000),
        (r"\boxed{72\text{ km}^2}", 72),
        ("#### 72 m^{2}", 72),
        ("#### " + "9" * 500, None),
    ],
)
def test_final_number(text: str, number: int | Fraction | None) -> None:
    assert final_number(text) == number


def test_thinking_is_not_the_answer() -> None:
    assert score("<think>#### 5</think>I do not know.", "5") == 0.0
    assert score("maybe #### 4</think>#### 5", "5") == 1.0


def test_an_exponent_bomb_is_harmless() -> None:
    assert score("#### 1e999999999", "5") == 0.0


@pytest.mark.parametrize("truth", ["", "none", "1 or 2", "#### "])
def test_an_unreadable_ground_truth_is_an_error(truth: str) -> None:
    with pytest.raises(ConfigError, match="ground_truth: must hold one number"):
        score("5", truth)


@given(st.integers(-(10**12), 10**12))
def test_integers_round_trip_in_every_dress(value: int) -> None:
    for text in (f"{value}", f"{value:,}", f"{value}.0", f"${value:,}", f"**{value}**"):
        assert numbers_in(text)[-1] == value


@given(st.text(max_size=200))
def test_any_text_can_be_scored(text: str) -> None:
    assert score(text, "5") in (0.0, 1.0)
    assert answer_format.score(text) in (0.0, 1.0)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("#### 5", 1.0),
        ("<think>a</think> #### 5", 1.0),
        ("a</think> #### 5", 1.0),
        (r"\boxed{5}", 1.0),
        ("5", 0.0),
        ("####", 0.0),
        ("#### 5 #### 6\n#### 7", 0.0),
        ("<think>a #### 5", 0.0),
        ("<think>#### 5</think>", 0.0),
    ],
)
def test_format(text: str, value: float) -> None:
    assert answer_format.score(text) == value
