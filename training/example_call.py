"""Make up a call of a tool from its schema alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..rollout.chat_template import Tokenizer
from ..schemas.errors import ConfigError
from ..schemas.tool import ToolSchema

# "1" is a program, an expression, a number and a query.
_BY_TYPE: dict[str, Any] = {"string": "1", "integer": 1, "number": 1, "boolean": True, "object": {}, "null": None}


def example_arguments(schema: ToolSchema) -> dict[str, Any]:
    """The required arguments with the simplest values that their schemas allow."""
    parameters = schema.function.parameters.model_dump(exclude_none=True)
    return {name: _example(parameters["properties"].get(name, {})) for name in parameters["required"]}


def written_call(tokenizer: Tokenizer, schemas: Sequence[ToolSchema], name: str, arguments: dict[str, Any]) -> str:
    """A turn with one call as the chat template writes it, without the end token.

    Raises:
        ConfigError: the template cannot write calls.
    """
    question = {"role": "user", "content": "question"}
    call = {"id": "call00001", "type": "function", "function": {"name": name, "arguments": arguments}}
    turn = {"role": "assistant", "content": "", "tool_calls": [call]}
    tools = [schema.as_template_dict() for schema in schemas]
    try:
        before = tokenizer.apply_chat_template([question], tools=tools, tokenize=False, add_generation_prompt=True)
        after = tokenizer.apply_chat_template([question, turn], tools=tools, tokenize=False)
    except Exception as error:
        raise ConfigError(f"chat template: it cannot write a tool call: {error}") from error
    text = str(after)
    shared = 0
    while shared < min(len(before), len(text)) and before[shared] == text[shared]:
        shared += 1
    written = text[shared:]
    if name not in written:
        raise ConfigError("chat template: it does not write tool calls; use a template that does")
    return written.rpartition(tokenizer.eos_token or "\0")[0] or written


def _example(schema: dict[str, Any]) -> Any:
    for key in ("const", "default"):
        if key in schema:
            return schema[key]
    if schema.get("examples"):
        return schema["examples"][0]
    if schema.get("enum"):
        return schema["enum"][0]
    kind = schema.get("type", "string")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "array":
        return [_example(schema.get("items", {}))] * max(1, schema.get("minItems", 1))
    if kind == "object":
        return {name: _example(schema.get("properties", {}).get(name, {})) for name in schema.get("required", ())}
    if kind in ("integer", "number") and "minimum" in schema:
        return max(1, schema["minimum"])
    return _BY_TYPE.get(kind, "1")
