"""The sandbox that our own code scores ask, before a run."""

from __future__ import annotations

from rollbox.rewards.code_tests import in_outs
from rollbox.rewards.registry import ScoreEntry
from rollbox.training.check_code_sandbox import check_scoring_sandbox


async def test_a_users_score_of_programs_is_not_tried_with_an_example_that_it_has_not() -> None:
    entry = ScoreEntry("mine", lambda *_: 1.0, "mine.py:1", check=in_outs)
    assert await check_scoring_sandbox([entry], "http://127.0.0.1:9") == []
