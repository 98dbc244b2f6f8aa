"""Comparisons of outputs and values."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollbox.sandbox.judge.compare import same_text, same_value
from rollbox.schemas.judge import ExactComparison, FloatComparison, TokensComparison

EXACT, TOKENS, FLOAT = ExactComparison(), TokensComparison(), FloatComparison(rel=1e-6, abs=1e-9)
SPACE = st.text(" \t\n\r\f", min_size=1, max_size=3)
WORD = st.text(st.characters(exclude_categories=("Z", "C")), min_size=1, max_size=8).filter(lambda word: word.split())
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.parametrize(
    ("output", "expected", "same"),
    [
        ("7\n", "7", True),
        ("7", "7\r\n", True),
        ("7\n\n\n", "7\n", True),
        (" 7", "7", False),
        ("7 ", "7", False),
        ("a\nb", "a\r\nb", False),
        ("", "", True),
        ("\n", "", True),
        ("", "7", False),
        ("a", "A", False),
    ],
)
def test_exact(output: str, expected: str, same: bool) -> None:
    assert same_text(output, expected, EXACT) is same


@given(st.lists(WORD), st.data())
def test_tokens_do_not_see_white_space(words: list[str], data: st.DataObject) -> None:
    def spaced() -> str:
        return data.draw(SPACE) + "".join(word + data.draw(SPACE) for word in words)

    assert same_text(spaced(), spaced(), TOKENS)
    assert same_text(spaced(), spaced(), FLOAT)


@given(st.lists(WORD, min_size=1), st.lists(WORD, min_size=1))
def test_tokens_see_every_word(one: list[str], other: list[str]) -> None:
    assert same_text(" ".join(one), "\n".join(other), TOKENS) == (" ".join(one).split() == " ".join(other).split())


@pytest.mark.parametrize(
    ("output", "expected", "same"),
    [
        ("1.0000001", "1", True),
        ("1.00001", "1", False),
        ("1e3", "1000", True),
        ("1E+3", "1000.0", True),
        (".5", "0.5", True),
        ("5.", "5", True),
        ("+5", "5", True),
        ("-0.0", "0", True),
        ("-1", "1", False),
        ("nan", "NaN", True),
        ("nan", "1", False),
        ("1", "nan", False),
        ("inf", "Infinity", True),
        ("inf", "-inf", False),
        ("inf", "1e308", False),
        ("1e999", "inf", True),
        ("1e400", "1e500", True),
        ("1e-400", "0", True),
        ("1e308", "-1e308", False),
        ("0.0000000001", "0", True),
        ("0.00000001", "0", False),
        ("1000000.5", "1000000", True),
        ("1_000", "1000", False),
        ("0x10", "16", False),
        ("١٢", "12", False),
        ("abc", "abc", True),
        ("abc", "abd", False),
        ("1 2", "1", False),
        ("1", "1 2", False),
        ("YES 0.3333333", "YES 0.33333333333", True),
        ("NO 0.3333333", "YES 0.33333333333", False),
    ],
)
def test_float(output: str, expected: str, same: bool) -> None:
    assert same_text(output, expected, FLOAT) is same


@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(0, 2))
def test_the_tolerance_is_the_larger_of_both(expected: float, part: float) -> None:
    allowed = max(FLOAT.abs, FLOAT.rel * abs(expected))
    value = expected + part * allowed
    if math.isfinite(value):
        same = abs(value - expected) <= allowed
        assert same_text(repr(value), repr(expected), FLOAT) == same
        assert same_value(value, expected, FLOAT) == same


@pytest.mark.parametrize(
    "text",
    ["1" * 10**6, "0." + "0" * 10**6 + "1", "1e" + "9" * 10**6, "-" * 10**6, "1" * 10**6 + "e" * 10, "1." * 10**5],
)
def test_long_words_take_no_more_than_their_length(text: str) -> None:
    # In time by the square of the length, these would take longer than a test may.
    assert same_text(text, text, FLOAT)
    assert not same_text(text + " x", text + " y", FLOAT)
    assert not same_text(f"{text}x {text}", f"x {text}", FLOAT)
    assert same_text(f"{text} " * 20, f"{text}\n" * 20, FLOAT)


@given(JSON)
def test_a_value_is_the_same_as_itself_over_json(value: Any) -> None:
    assert same_value(json.loads(json.dumps(value)), value, EXACT)
    assert same_value(value, value, FLOAT)


@given(JSON, JSON)
def test_values_are_the_same_when_python_says_so(one: Any, other: Any) -> None:
    assert same_value(one, other, EXACT) == same_value(other, one, EXACT)
    if one == other:
        assert same_value(one, other, EXACT)
    elif "nan" not in repr((one, other)):
        assert not same_value(one, other, EXACT)


@pytest.mark.parametrize(
    ("value", "expected", "same"),
    [
        (1, 1.0, True),
        (True, 1, True),
        (1, "1", False),
        (None, 0, False),
        (None, False, False),
        ([], {}, False),
        ([1, [2, 3]], [1, [2, 3]], True),
        ([1, 2], [2, 1], False),
        ([1], [1, 2], False),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        (10**400, 10**400, True),
        (10**400, 1.5, False),
        (1.5, 10**400, False),
        (math.nan, math.nan, True),
        (0.1 + 0.2, 0.3, False),
    ],
)
def test_values(value: Any, expected: Any, same: bool) -> None:
    assert same_value(value, expected, EXACT) is same
    assert same_value([{"x": value}], [{"x": expected}], EXACT) is same


def test_numbers_in_values_may_be_close() -> None:
    assert same_value({"x": [0.1 + 0.2, 10**400]}, {"x": [0.3, 10**400]}, FLOAT)
    assert not same_value({"x": ["0.30000001"]}, {"x": ["0.3"]}, FLOAT)


def test_deep_values_do_not_exhaust_the_stack() -> None:
    deep: Any = 1
    other: Any = 2
    for _ in range(100_000):
        deep, other = [deep], [other]
    assert same_value(deep, deep, EXACT)
    assert not same_value(deep, other, EXACT)
    while isinstance(deep, list):  # its own end would recurse
        deep, other = deep.pop(), other.pop()
