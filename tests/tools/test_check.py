"""Arguments that are made up from a schema fit it."""

from __future__ import annotations

from typing import Any

import pytest

from rollbox.schemas.tool import ParametersSchema
from rollbox.tools.arguments import ArgumentsValidator
from rollbox.tools.check import check_tools, example_arguments, made_up

from .counting_tool import CountingTool


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "string"}, "example"),
        ({"type": "integer", "minimum": 5}, 5),
        ({"type": ["number", "null"]}, 1.0),
        ({"enum": ["b", "c"]}, "b"),
        ({"type": "array", "items": {"type": "boolean"}}, [True]),
        ({"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}, {"x": 1}),
        ({"type": "string", "default": "d"}, "d"),
        ({"type": "null"}, None),
    ],
)
def test_made_up_values(schema: dict[str, Any], value: Any) -> None:
    parameters = ParametersSchema.model_validate({"properties": {"a": schema}, "required": ["a"]})
    assert made_up(parameters) == {"a": value}


async def test_a_tool_without_example_is_called_with_what_its_schema_asks_for() -> None:
    tool = CountingTool()
    assert example_arguments(tool) == {}
    ArgumentsValidator(tool.tool_schema).check(example_arguments(tool))
    [checked] = await check_tools({"count": tool})
    assert (checked.text, checked.ok) == ("1", True)  # of the first call
    assert [event for event, _ in tool.log] == ["create", "execute", "execute", "release"]


async def test_a_broken_tool_is_not_ok() -> None:
    [checked] = await check_tools({"count": CountingTool()}, {"count": {"mode": "raise"}})
    assert not checked.ok
    assert checked.error == "RuntimeError: a bug in the tool"
