"""Arguments of the wrong JSON type are read where only one meaning is sensible, and left alone elsewhere."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollbox.tools.coercion import coerce

STRINGS = {"type": "array", "items": {"type": "string"}}


@pytest.mark.parametrize(
    ("value", "schema", "expected"),
    [
        ("5", {"type": "integer"}, 5),
        ("-3", {"type": "integer"}, -3),
        ("2.5", {"type": "number"}, 2.5),
        ("1e3", {"type": "number"}, 1000.0),
        ("True", {"type": "boolean"}, True),
        ("capital of Peru", STRINGS, ["capital of Peru"]),
        ('["a", "b"]', STRINGS, ["a", "b"]),
        ('{"a": 1}', {"type": "object"}, {"a": 1}),
        (5, {"type": "string"}, "5"),
        (2.5, {"type": "string"}, "2.5"),
        (7, {"type": "array", "items": {"type": "integer"}}, [7]),
        ("x", {"type": ["array", "null"]}, ["x"]),
    ],
)
def test_safe_readings(value: Any, schema: dict[str, Any], expected: Any) -> None:
    read, changes = coerce({"a": value}, {"a": schema})
    assert read == {"a": expected}
    assert type(read["a"]) is type(expected)
    assert len(changes) == 1
    assert changes[0].startswith("a: ")


@pytest.mark.parametrize(
    ("value", "schema"),
    [
        ("5", {"type": "string"}),
        ("five", {"type": "integer"}),
        ("5.5", {"type": "integer"}),
        ("9" * 40, {"type": "integer"}),
        ("nan", {"type": "number"}),
        ("yes", {"type": "boolean"}),
        (1, {"type": "boolean"}),
        (True, {"type": "integer"}),
        (True, {"type": "string"}),
        (None, {"type": "string"}),
        ({"a": 1}, {"type": "string"}),
        (5, STRINGS),
        ("[broken", {"type": "object"}),
        ("[broken", STRINGS),
        ("anything", {}),
        (4.0, {"type": "integer"}),
    ],
)
def test_what_is_left_alone(value: Any, schema: dict[str, Any]) -> None:
    assert coerce({"a": value}, {"a": schema}) == ({"a": value}, [])


def test_an_argument_without_schema_is_left_alone() -> None:
    assert coerce({"b": "5"}, {"a": {"type": "integer"}}) == ({"b": "5"}, [])


@given(st.integers(-(10**17), 10**17))
def test_integers_survive(value: int) -> None:
    assert coerce({"a": str(value)}, {"a": {"type": "integer"}})[0] == {"a": value}
