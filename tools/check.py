"""Call each tool once, as a check before a run: does it load, answer, and how fast."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..schemas.errors import INFRA_KINDS, ErrorKind
from ..schemas.tool import ParametersSchema, ToolCall
from .base import BaseTool
from .dispatch import DispatchLimits, ToolBox

_VALUES: dict[str, Any] = {"string": "example", "integer": 1, "number": 1.0, "boolean": True, "array": [], "object": {}}


@dataclass(frozen=True, slots=True)
class ToolCheck:
    """One tool's answer to the first of two calls, or what failed.

    Attributes:
        first_ms: wall time of the first call, in which a tool connects or builds its index. again_ms: of a second one.
    """

    name: str
    arguments: dict[str, Any]
    text: str
    error_kind: ErrorKind | None
    error: str | None
    first_ms: float
    again_ms: float

    @property
    def ok(self) -> bool:
        """The tool works. What it says to made-up arguments is its own affair."""
        return self.error_kind not in INFRA_KINDS


async def check_tools(
    tools: Mapping[str, BaseTool], arguments: Mapping[str, dict[str, Any]] | None = None, *, timeout_s: float = 60.0
) -> list[ToolCheck]:
    """Call each tool twice, one tool after the other, and close them.

    Args:
        arguments: tool name -> arguments; by default the class's `example`, or made up from the schema.

    Raises:
        ConfigError: a tool's schema is no JSON schema.
    """
    box = ToolBox(tools, DispatchLimits(call_timeout_s=timeout_s))
    checks = []
    try:
        for name, tool in tools.items():
            given = (arguments or {}).get(name)
            checks.append(await _check(box, name, example_arguments(tool) if given is None else given))
    finally:
        await asyncio.gather(*(tool.aclose() for tool in tools.values()), return_exceptions=True)
    return checks


def example_arguments(tool: BaseTool) -> dict[str, Any]:
    """Arguments to try a tool with."""
    parameters = tool.tool_schema.function.parameters
    if tool.example is not None and set(tool.example) <= set(parameters.properties):
        return dict(tool.example)
    return made_up(parameters)


def made_up(parameters: ParametersSchema) -> dict[str, Any]:
    """A value for each required parameter: its default, example or first choice, else any of its type."""
    return {
        name: _value(parameters.properties[name].model_dump(exclude_none=True)) if name in parameters.properties else ""
        for name in parameters.required
    }


def _value(schema: Mapping[str, Any]) -> Any:
    for key in ("default", "const"):
        if key in schema:
            return schema[key]
    for key in ("examples", "enum"):
        if schema.get(key):
            return schema[key][0]
    declared = schema.get("type", "string")
    kind = declared if isinstance(declared, str) else next(iter(declared), "string")
    if kind == "array" and "items" in schema:
        return [_value(schema["items"])]
    if kind == "object":
        properties = schema.get("properties", {})
        return {name: _value(properties.get(name, {})) for name in schema.get("required", [])}
    if kind in ("integer", "number"):
        return schema.get("minimum", _VALUES[kind])
    return _VALUES.get(kind)


async def _check(box: ToolBox, name: str, arguments: dict[str, Any]) -> ToolCheck:
    times_ms, answers = [], []
    async with box.trajectory(f"check-{name}") as tools:
        for turn in range(2):
            started = time.perf_counter()
            answers.append(await tools.call(ToolCall(name=name, arguments=arguments), turn, 0))
            times_ms.append((time.perf_counter() - started) * 1e3)
            if answers[-1].record.is_infra:
                break
    answer = answers[-1] if answers[-1].record.is_infra else answers[0]
    record = answer.record
    return ToolCheck(
        name, arguments, answer.response.text or "", record.error_kind, record.error, times_ms[0], times_ms[-1]
    )
