"""GRPO-RoC in a batch: what it sees of a trajectory, and what is left of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollbox.rewards.answers import answer_count
from rollbox.schemas.errors import ConfigError
from rollbox.training.algorithms.resample import Quality
from rollbox.training.batch_rows import BatchRow
from rollbox.training.resampling import ResampleSettings, quality_of, resampled


def row(
    question: str,
    session: int,
    acc: float | None = 0.0,
    errors: Sequence[str | None] = (None,),
    texts: Sequence[str] = ("#### 5",),
    **record: Any,
) -> BatchRow:
    calls = [{"error_kind": error} for error in errors]
    known = {"calls": calls, "assistant_texts": list(texts), "infra_failed": False, **record}
    return BatchRow(f"{question}_{session}_0", known, {"acc": acc}, [0.0], [1])


def test_what_the_paper_looks_at() -> None:
    errors = [None, "bad_arguments", "parse", "infra", "timeout"]
    texts = ["<think>#### 1</think> first", "<answer>4</answer> no: <answer>5</answer>"]
    found = quality_of(row("a", 0, errors=errors, texts=texts))
    assert (found.calls, found.answers, found.turns) == (5, 2, 2)
    assert quality_of(row("a", 0, errors=(), texts=["I do not know"])) == Quality(0, 0, 0, 1)
    with pytest.raises(ConfigError, match="needs the agent loop rollbox_agent"):
        quality_of(BatchRow("a_0_0", None, {}, None, [1]))


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("", 0),
        ("#### 5", 1),
        ("so \\boxed{5} and \\boxed{6}", 2),
        ("<answer>\\boxed{5}</answer>", 1),
        ("Answer: 5\nAnswer: 6", 2),
        ("<think>\\boxed{1} \\boxed{2}</think>Answer: \\boxed{3}", 1),
    ],
)
def test_answers_are_counted_by_the_mark_that_is_used(text: str, number: int) -> None:
    assert answer_count(text) == number


def test_right_and_clean_prevail_and_wrong_stay_diverse() -> None:
    dirty = {"errors": ["parse"] * 4, "texts": ["#### 1\n#### 2\n#### 3"]}
    right = [row("a", i, 1.0) for i in range(4)] + [row("a", i, 1.0, **dirty) for i in range(4, 8)]  # type: ignore[arg-type]
    wrong = [row("a", i) for i in range(8, 12)] + [row("a", i, **dirty) for i in range(12, 16)]  # type: ignore[arg-type]
    rows, counts = [*right, *wrong], [0] * 16
    for step in range(600):
        kept, metrics = resampled(rows, ResampleSettings(keep=8), step)
        assert sum(position < 8 for position in kept) == 4
        assert metrics["resample/left_out_total"] == 8
        assert metrics["resample/correct_share_after/mean"] == metrics["resample/correct_share_before/mean"] == 0.5
        assert metrics["resample/correct_penalty_before/mean"] == pytest.approx(1.0)
        for position in kept:
            counts[position] += 1
    assert fmean(counts[:4]) > 5 * fmean(counts[4:8])
    assert fmean(counts[8:12]) == pytest.approx(fmean(counts[12:]), rel=0.15)
    assert resampled(rows, ResampleSettings(keep=8), 7) == resampled(rows, ResampleSettings(keep=8), 7)


@settings(deadline=None)
@given(
    st.lists(st.lists(st.sampled_from(["right", "wrong", "failed"]), min_size=1, max_size=8), min_size=1, max_size=4),
    st.integers(1, 6),
)
def test_each_question_keeps_as_many_as_asked(groups: list[list[str]], keep: int) -> None:
    rows = [
        row(f"q{number}", session, {"right": 1.0, "wrong": 0.0, "failed": None}[kind], infra_failed=kind == "failed")
        for number, kinds in enumerate(groups)
        for session, kind in enumerate(kinds)
    ]
    kept, _ = resampled(rows, ResampleSettings(keep=keep), 1)
    assert kept == sorted(set(kept))
    for number, kinds in enumerate(groups):
        chosen = [kinds[int(rows[i].key.split("_")[1])] for i in kept if rows[i].key.startswith(f"q{number}_")]
        assert len(chosen) == min(keep, len(kinds))
        # What failed takes no place of what did not.
        assert len([kind for kind in chosen if kind != "failed"]) == min(keep, len(kinds) - kinds.count("failed"))


def test_a_reward_that_does_not_say_what_is_correct_is_named() -> None:
    rows = [BatchRow(f"a_{i}_0", row("a", i).record, {"score": 1.0}, [1.0], [1]) for i in range(4)]
    with pytest.raises(ConfigError, match="the reward must give `acc`"):
        resampled(rows, ResampleSettings(keep=2), 1)
