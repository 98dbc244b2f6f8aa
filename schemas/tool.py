"""Tool schemas, calls and responses, in the OpenAI function format that verl, vLLM and SGLang share."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class PropertySchema(BaseModel):
    """JSON schema of one parameter. Keywords beyond the named ones (items, minimum, …) are kept."""

    model_config = ConfigDict(extra="allow")

    type: str | list[str] | None = None
    description: str | None = None
    enum: list[Any] | None = None


class ParametersSchema(BaseModel):
    """JSON schema of all parameters of a function."""

    model_config = ConfigDict(extra="allow")

    type: Literal["object"] = "object"
    properties: dict[str, PropertySchema] = Field(default_factory=dict)
    required: list[str] = Field(default_factory=list)


class FunctionSchema(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str = Field(min_length=1, pattern=r"^[A-Za-z_][A-Za-z0-9_.\-]*$")
    description: str = ""
    parameters: ParametersSchema = Field(default_factory=ParametersSchema)
    strict: bool = False


class ToolSchema(BaseModel):
    """One tool as a chat template is given it; the shape of verl's `OpenAIFunctionToolSchema`."""

    model_config = ConfigDict(extra="forbid")

    type: Literal["function"] = "function"
    function: FunctionSchema

    def as_template_dict(self) -> dict[str, Any]:
        """The plain dictionary that `apply_chat_template(tools=[...])` expects."""
        dumped = self.function.model_dump(exclude_none=True, exclude={"strict"})
        return {"type": "function", "function": dumped}


class ToolCall(BaseModel):
    """One call as parsed from a model's turn.

    Attributes:
        name: the tool's name, as the model wrote it.
        arguments: the arguments object.
        repaired: the text was not valid JSON and was read by a safe repair.
    """

    model_config = ConfigDict(extra="forbid")

    name: str
    arguments: dict[str, Any]
    repaired: bool = False


class ToolResponse(BaseModel):
    """What a tool answers; attribute for attribute verl's `ToolResponse`."""

    text: str | None = None
    image: list[Any] | None = None
    video: list[Any] | None = None

    def is_empty(self) -> bool:
        return not self.text and not self.image and not self.video

    def is_text_only(self) -> bool:
        return bool(self.text) and not self.image and not self.video
