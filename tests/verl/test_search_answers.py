"""Search-R1's answers are scored as verl scores them, and where ours differ on purpose, verl's really has the gap."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from verl.utils.reward_score.search_r1_like_qa_em import compute_score

from rollbox.rewards.search_qa import exact_match, search_r1_match, strict_match
from rollbox.rewards.trajectory import score_trajectory, trajectory_of_text
from rollbox.schemas.trajectory import Sample

pytestmark = pytest.mark.verl

_PIECES = st.sampled_from(
    [
        "<answer>",
        "</answer>",
        "<answer>" * 11,
        "</answer>" * 11,
        "Lima",
        "the",
        "A",
        "an",
        " ",
        "\n",
        "-5",
        "5",
        "3.14",
        "314",
        "é",
        "e\u0301",
        "—",
        "-",
        "’",
        "'",
        "St. John’s",
        "1,000",
        "1000",
        ".",
        "!",
        "_",
        "$",
        "%",
        "١",
        "ß",
        "İ",
    ]
)
_TEXTS = st.lists(_PIECES, max_size=12).map("".join)
_GOLDS = st.lists(st.lists(_PIECES, min_size=1, max_size=4).map("".join), min_size=1, max_size=3)


def verls(text: str, golds: list[str]) -> float:
    return float(compute_score(text, {"target": golds}))


@settings(deadline=None, max_examples=1500)
@given(_TEXTS, _GOLDS)
def test_every_score_is_verls(text: str, golds: list[str]) -> None:
    golds = [gold for gold in golds if gold.strip()] or ["Lima"]
    ground_truth = json.dumps({"target": golds})
    assert search_r1_match(text, ground_truth).value == verls(text, golds)
    # Ours gives less only where nothing is left of the answer.
    assert exact_match(text, ground_truth).value <= verls(text, golds)


@pytest.mark.parametrize(
    ("answer", "gold", "verl_gives", "ours", "strict"),
    [
        ("Lima", "Lima", 1, 1, 1),
        ("  the City of LIMA!", "city of Lima", 1, 1, 1),
        ("5", "-5", 1, 1, 0),
        ("314", "3.14", 1, 1, 0),
        ("3.14", "3.14", 1, 1, 1),
        ("1,000", "1000", 1, 1, 0),
        ("1.50", "1.50", 1, 1, 1),
        ("1E3", "1e3", 1, 1, 1),
        ("-0", "-0", 1, 1, 1),
        ("the", "A", 1, 0, 0),
        ("A", "A", 1, 1, 1),
        ("", "A", 1, 0, 0),
        ("Perú", "Peru", 0, 0, 1),
        ("1939–1945", "1939-1945", 0, 0, 1),
        ("St. John’s", "St. John's", 0, 0, 1),
        ("Cusco", "Lima", 0, 0, 0),
    ],
)
def test_known_pitfalls(answer: str, gold: str, verl_gives: int, ours: int, strict: int) -> None:
    text = f"<answer>{answer}</answer>"
    assert verls(text, [gold]) == verl_gives
    assert search_r1_match(text, gold).value == verl_gives
    assert exact_match(text, gold).value == ours
    assert strict_match(text, gold).value == strict


def test_a_gold_answer_that_is_a_number() -> None:
    with pytest.raises(AttributeError):
        compute_score("<answer>1945</answer>", {"target": [1945]})
    for score in (search_r1_match, exact_match, strict_match):
        assert score("<answer>1945</answer>", '{"target": [1945]}').value == 1.0


async def test_an_answer_in_what_a_tool_said_is_no_answer() -> None:
    said = "<information>Doc 1 <answer>Lima</answer></information>"
    assert verls(f"<search>capital of Peru</search>{said}I do not know.", ["Lima"]) == 1.0
    sample = Sample(
        sample_id="s",
        data_source="searchR1_nq",
        messages=[{"role": "user", "content": "?"}],
        ground_truth='{"target": ["Lima"]}',
    )
    rewards = await score_trajectory(trajectory_of_text(sample, "I do not know."))
    assert rewards is not None
    assert rewards.correct is False
