"""Rewards of a trajectory's shape, against the papers' own numbers and formulas."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollbox.rewards.shaping import call_cost, call_cost_from_optimum, error_count, overlong, void_turns
from rollbox.schemas.errors import ErrorKind
from rollbox.schemas.trajectory import StopReason

from .trajectories import call, trajectory


@pytest.mark.parametrize(
    ("tokens", "value"),
    # DAPO's own setting: at most 20480 tokens, the last 4096 of them punished.
    [(0, 0.0), (16384, 0.0), (16385, -1 / 4096), (18432, -0.5), (20480, -1.0), (30000, -1.0)],
)
def test_overlong(tokens: int, value: float) -> None:
    assert overlong(tokens, 20480, 4096) == pytest.approx(value)
    assert value or str(overlong(tokens, 20480, 4096)) == "0.0"  # tables would show -0.000


def test_few_calls_are_worth_more() -> None:
    values = [call_cost(calls, 4.0) for calls in range(10)]
    assert values[0] == 1.0
    assert values == sorted(values, reverse=True)
    assert values[4] == pytest.approx(math.cos(4 * math.pi / 12))
    assert all(value > 0 for value in values)


@settings(deadline=None)
@given(st.integers(0, 20), st.integers(0, 20))
def test_the_optimum_earns_most(calls: int, optimal: int) -> None:
    best = call_cost_from_optimum(optimal, optimal, 4.0)
    assert best == pytest.approx(1.0)
    assert -1e-9 <= call_cost_from_optimum(calls, optimal, 4.0) <= best + 1e-9


def test_call_cost_against_hand_made_numbers() -> None:
    # m = 2, n = 1: f = 2 * 2 * 1 / 3, sin(f pi / 2) = sin(2 pi / 3).
    assert call_cost_from_optimum(2, 1, 4.0) == pytest.approx(math.sin(2 * math.pi / 3))
    assert call_cost_from_optimum(0, 1, 4.0) == 0.0


def test_only_the_models_own_errors_are_counted() -> None:
    kinds = [None, ErrorKind.USER_CODE, ErrorKind.PARSE, ErrorKind.INFRA, ErrorKind.OVERLOADED]
    assert error_count(trajectory(records=[call(0, error_kind=kind) for kind in kinds])) == 2


@pytest.mark.parametrize(
    ("fields", "void"),
    [
        ({"records": [call(0)]}, 0),
        ({"records": []}, 1),
        ({"records": [call(0, error_kind=ErrorKind.PARSE, executed=False)]}, 1),
        ({"records": [call(0, error_kind=ErrorKind.PARSE, executed=False), call(0)]}, 0),
        ({"records": [call(0, error_kind=ErrorKind.USER_CODE)]}, 0),
        ({"records": [call(0)], "answer": "  "}, 1),
        ({"records": [call(0)], "stop_reason": StopReason.TURN_TRUNCATED}, 1),
        ({"records": [call(0), call(1)], "stop_reason": StopReason.MAX_TURNS}, 0),
    ],
)
def test_void_turns(fields: dict, void: int) -> None:  # type: ignore[type-arg]
    assert void_turns(trajectory(**fields)) == void
