"""Check score functions before they are trained on: their fixtures, and what a policy will find sooner or later."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass

from ..schemas.errors import RollboxError
from .registry import Fixture, ScoreEntry

_MAX_CPU_S = 10.0
_MAX_S = 120.0
_HUGE = 100_000

# Answers that should earn nothing whatever the question is, and must not raise, hang or give NaN.
_HOSTILE = {
    "empty": "",
    "blank": " \n\t\n",
    "malformed": "<think><answer>\\boxed{ #### ```python\n<answer>{",
    "every tag": "<think></think><answer></answer>\\boxed{}\n####\nAnswer:\n```\n```",
    "huge": "word " * _HUGE,
    "a blank after a label": "The answer is" + " " * (_HUGE // 4),
    "many openings": "<answer>\\boxed{<think>```" * (_HUGE // 10),
    "many numbers": "1,2.3/4e5 " * (_HUGE // 10),
    "non-ASCII": "答案是４２。 ٤٢ ½ −５ \u202e24\u202c e\u0301 🙂 \ud7ff \x00",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One check of one function. Attributes: problem: empty when it passed."""

    pattern: str
    check: str
    problem: str
    cpu_ms: float = 0.0


async def verify(entries: Iterable[ScoreEntry]) -> AsyncIterator[Finding]:
    """Check each function; a finding per check."""
    for entry in entries:
        if not entry.fixtures:
            yield Finding(
                entry.pattern, "fixtures", "it has none: give @score(..., fixtures=[Fixture(answer, truth, reward)])"
            )
            continue
        for number, fixture in enumerate(entry.fixtures):
            yield await _checked(entry, f"fixture {number}", fixture, exact=True)
        full = max(fixture.expected for fixture in entry.fixtures)
        yield _shows_both_ends(entry, full)
        model = entry.fixtures[0]
        for name, text in _HOSTILE.items():
            hostile = Fixture(text, model.ground_truth, full, model.extra_info)
            yield await _checked(entry, name, hostile, exact=False)


def _shows_both_ends(entry: ScoreEntry, full: float) -> Finding:
    lowest = min(fixture.expected for fixture in entry.fixtures)
    problem = "" if lowest < full else "all fixtures earn the same: add a right answer or a wrong one"
    return Finding(entry.pattern, "a right and a wrong answer", problem)


async def _checked(entry: ScoreEntry, check: str, fixture: Fixture, *, exact: bool) -> Finding:
    started = time.process_time()
    try:
        async with asyncio.timeout(_MAX_S):
            first = await entry(fixture.solution_str, fixture.ground_truth, fixture.extra_info)
            second = await entry(fixture.solution_str, fixture.ground_truth, fixture.extra_info)
    except TimeoutError:
        return Finding(entry.pattern, check, f"did not end within {_MAX_S:g} s")
    except RollboxError as error:
        return Finding(entry.pattern, check, str(error))
    cpu_s = (time.process_time() - started) / 2
    problem = ""
    if first != second:
        problem = f"not deterministic: {first.value}, then {second.value}"
    elif exact and abs(first.value - fixture.expected) > 1e-9:
        problem = f"expected {fixture.expected}, got {first.value}, for {fixture.solution_str[:60]!r}"
    elif not exact and first.value >= fixture.expected:
        problem = f"earns the full {first.value} for an answer that says nothing"
    elif cpu_s > _MAX_CPU_S:
        problem = f"took {cpu_s:.0f} s of CPU for {len(fixture.solution_str)} characters"
    return Finding(entry.pattern, check, problem, cpu_s * 1000)
