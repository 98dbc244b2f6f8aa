"""The tools YAML: `tools: [{class_name, config, tool_schema?}]`, the file that verl's loader reads too."""

from __future__ import annotations

from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from .tool import ToolSchema
from .validation import nearest

KINDS = ("native", "function", "mcp")


class ToolEntry(BaseModel):
    """One tool: what to load, its configuration, and optionally the schema shown to the model.

    Attributes:
        class_name: dotted name of a tool class (`native`), or of a function (`function`). An MCP server needs none.
        config: the tool's own settings, and `type`: `native`, `function` or `mcp`.
    """

    model_config = ConfigDict(extra="forbid")

    class_name: str = ""
    config: dict[str, Any] = Field(default_factory=dict)
    tool_schema: ToolSchema | None = None

    @property
    def kind(self) -> str | None:
        """`config.type`; None where it is not given."""
        return self.config.get("type")

    @field_validator("config", mode="before")
    @classmethod
    def _empty(cls, value: Any) -> Any:
        return {} if value is None else value  # `config:` with nothing behind it

    @field_validator("config")
    @classmethod
    def _known_type(cls, value: dict[str, Any]) -> dict[str, Any]:
        kind = value.get("type", "native")
        if kind not in KINDS:
            raise ValueError(f"type must be one of {', '.join(KINDS)}, not {kind!r}{nearest(str(kind), KINDS)}")
        return value

    @model_validator(mode="after")
    def _named(self) -> Self:
        name = self.class_name
        if not name and self.kind == "mcp":
            return self
        if not all(part.isidentifier() for part in name.split(".")) or "." not in name:
            raise ValueError(f"class_name must be 'package.module.Name', not {name!r}")
        return self


class ToolsConfig(BaseModel):
    model_config = ConfigDict(extra="forbid")

    tools: list[ToolEntry] = Field(min_length=1)
