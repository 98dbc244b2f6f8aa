"""Programs with known answers, through HTTP and the jail."""

from __future__ import annotations

import pytest

from ..conftest import RunCode
from .known_answers import ANSWERS


@pytest.mark.parametrize("name", ANSWERS)
async def test_known_answer(run: RunCode, name: str) -> None:
    code, expected = ANSWERS[name]
    result = await run(code, wall_s=60)
    assert (result.status, result.stderr) == ("ok", "")
    assert result.stdout.removesuffix("\n") == expected


def test_there_are_at_least_fifty() -> None:
    assert len(ANSWERS) >= 50
