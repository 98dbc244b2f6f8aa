"""Check a call's arguments against the tool's JSON schema."""

from __future__ import annotations

from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError

from ..schemas.errors import ConfigError, ErrorKind, ToolError
from ..schemas.tool import ToolSchema
from .coercion import coerce

_SHOWN_PROBLEMS = 3
_SHOWN_CHARS = 200


class ArgumentsValidator:
    """Compiled once per tool.

    Raises:
        ConfigError: the schema itself is not a JSON schema.
    """

    def __init__(self, tool_schema: ToolSchema) -> None:
        self._name = tool_schema.function.name
        self._parameters = tool_schema.function.parameters.model_dump(exclude_none=True)
        try:
            Draft202012Validator.check_schema(self._parameters)
        except SchemaError as error:
            raise ConfigError(f"tool {self._name!r}: parameters are not a JSON schema: {error.message}") from error
        self._validator = Draft202012Validator(self._parameters)

    def check(self, arguments: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
        """The arguments as the tool is to get them, and what was read as another type (see `coercion`).

        Raises:
            ToolError: (kind `arguments`) naming each wrong field and what the tool expects.
        """
        arguments, changes = coerce(arguments, self._parameters["properties"])
        problems = sorted(self._validator.iter_errors(arguments), key=lambda item: list(map(str, item.path)))
        unknown = sorted(set(arguments) - set(self._parameters["properties"]))
        lines = [_describe(item) for item in problems[:_SHOWN_PROBLEMS]]
        # An argument that the tool does not know is a misunderstanding worth naming, also where the schema is lax.
        if unknown and self._parameters.get("additionalProperties") is None:
            lines.append(f"unknown argument {', '.join(map(repr, unknown))}")
        if lines:
            expected = ", ".join(self._parameters["properties"]) or "no arguments"
            raise ToolError(
                f"Wrong arguments for {self._name!r}: {'; '.join(lines)}. Expected: {expected}.", ErrorKind.ARGUMENTS
            )
        return arguments, changes


def _describe(error: ValidationError) -> str:
    field = ".".join(str(part) for part in error.absolute_path)
    message = error.message if len(error.message) <= _SHOWN_CHARS else error.message[:_SHOWN_CHARS] + "…"
    return f"{field}: {message}" if field else message
