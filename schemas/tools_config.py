"""The tools YAML: `tools: [{class_name, config, tool_schema?}]`, the file that verl's loader reads too."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from .tool import ToolSchema


class ToolEntry(BaseModel):
    """One tool: the class to load, its configuration, and optionally the schema shown to the model."""

    model_config = ConfigDict(extra="forbid")

    class_name: str
    config: dict[str, Any] = Field(default_factory=dict)
    tool_schema: ToolSchema | None = None

    @field_validator("class_name")
    @classmethod
    def _dotted(cls, value: str) -> str:
        if not all(part.isidentifier() for part in value.split(".")) or "." not in value:
            raise ValueError("must be 'package.module.ClassName'")
        return value


class ToolsConfig(BaseModel):
    model_config = ConfigDict(extra="forbid")

    tools: list[ToolEntry] = Field(min_length=1)
