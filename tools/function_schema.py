"""The schema of a plain function: types from its hints, texts from its docstring."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, get_args, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, PydanticUserError, create_model

from ..schemas.errors import ConfigError
from ..schemas.tool import ToolSchema
from ..schemas.validation import validated
from .base import CallContext

_ARGUMENT = re.compile(r"(\*{0,2}\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)")
_SECTION = re.compile(r"(?:Args|Arguments|Parameters|Returns?|Yields|Raises|Examples?|Notes?|Attributes):\s*$")


@dataclass(frozen=True, slots=True)
class FunctionSignature:
    """Attributes:
    arguments: pydantic model of what the function takes from the model.
    context_parameter: name of the parameter that takes the `CallContext`, if any.
    """

    arguments: type[BaseModel]
    context_parameter: str | None
    tool_schema: ToolSchema


def signature_of(
    function: Callable[..., Any], name: str | None = None, description: str | None = None
) -> FunctionSignature:
    """Read a function's signature.

    Args:
        name, description: in place of the function's own name and the first paragraph of its docstring.

    Raises:
        ConfigError: a parameter has no type hint, is `*args` or `**kwargs`, or has a type that JSON cannot express.
    """
    where = f"function {function.__qualname__}"
    summary, described = read_docstring(inspect.getdoc(function) or "")
    fields, context_parameter = _fields(function, described, where)
    try:
        arguments = create_model(f"{function.__name__}_arguments", __config__=ConfigDict(extra="forbid"), **fields)
        schema = arguments.model_json_schema()
    except (PydanticUserError, TypeError, NameError) as error:
        raise ConfigError(f"{where}: a type hint has no JSON schema: {error}") from error
    parameters = {
        "type": "object",
        "properties": _simplified(schema.get("properties", {}), schema.get("$defs", {}), where, ()),
        "required": schema.get("required", []),
    }
    made = {"name": name or function.__name__, "description": description or summary, "parameters": parameters}
    if not made["description"]:
        raise ConfigError(f"{where}: no docstring; the model reads its first paragraph as the tool's description")
    return FunctionSignature(arguments, context_parameter, validated(ToolSchema, {"function": made}, where))


def read_docstring(doc: str) -> tuple[str, dict[str, str]]:
    """The first paragraphs, up to the first section, and the texts of a Google-style `Args:` section by parameter."""
    summary: list[str] = []
    described: dict[str, str] = {}
    section = current = ""
    indent = 0
    for line in doc.splitlines():
        text = line.strip()
        if _SECTION.fullmatch(text):
            section, indent = text.rstrip(":"), 0
        elif not section:
            summary.append(text)
        elif section in ("Args", "Arguments", "Parameters") and text:
            depth = len(line) - len(line.lstrip())
            indent = indent or depth
            match = _ARGUMENT.fullmatch(text) if depth == indent else None
            if match:
                current = match[1].lstrip("*")
                described[current] = match[2]
            elif current:
                described[current] += f" {text}"
    return "\n".join(summary).strip(), described


def _fields(
    function: Callable[..., Any], described: Mapping[str, str], where: str
) -> tuple[dict[str, Any], str | None]:
    try:
        hints = get_type_hints(function, include_extras=True)
    except (NameError, TypeError) as error:
        raise ConfigError(f"{where}: a type hint cannot be read: {error}") from error
    fields: dict[str, Any] = {}
    context_parameter = None
    for name, parameter in inspect.signature(function).parameters.items():
        hint = hints.get(name)
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise ConfigError(f"{where}: parameter {name!r} cannot be given by name")
        if hint is None:
            raise ConfigError(f"{where}: parameter {name!r} has no type hint")
        if hint is CallContext or CallContext in get_args(hint):
            context_parameter = name
            continue
        default = ... if parameter.default is parameter.empty else parameter.default
        # Not described here, an `Annotated` hint may bring a description of its own.
        described_field = Field(default, description=described[name]) if name in described else Field(default)
        fields[name] = (hint, described_field)
    return fields, context_parameter


def _simplified(node: Any, definitions: Mapping[str, Any], where: str, seen: tuple[str, ...]) -> Any:
    """Without `$ref` and titles, which chat templates do not follow or show, and `T | None` as a list of types.

    Raises:
        ConfigError: a type holds itself.
    """
    if isinstance(node, list):
        return [_simplified(item, definitions, where, seen) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        name = node["$ref"].rpartition("/")[2]
        if name in seen:
            raise ConfigError(f"{where}: the type {name!r} holds itself, which a tool's schema cannot say")
        rest = {key: value for key, value in node.items() if key != "$ref"}
        return _simplified({**definitions[name], **rest}, definitions, where, (*seen, name))
    made = {
        key: {name: _simplified(item, definitions, where, seen) for name, item in value.items()}
        if key == "properties"
        else value
        if key in ("default", "enum", "const", "examples")
        else _simplified(value, definitions, where, seen)
        for key, value in node.items()
        if key != "title" or isinstance(value, dict)
    }
    choices = made.get("anyOf")
    if choices and all(isinstance(choice.get("type"), str) for choice in choices):
        simple = [choice for choice in choices if set(choice) == {"type"}]
        full = [choice for choice in choices if set(choice) != {"type"}]
        if len(full) <= 1:  # at most one says more than its type, so that nothing is mixed up
            del made["anyOf"]
            types = [choice["type"] for choice in choices]
            made = {**(full[0] if full and len(simple) == len(choices) - 1 else {}), **made, "type": types}
    return made
