"""BaseTool: what a tool is. The signatures are verl's (`verl.tools.base_tool.BaseTool`, 0.7.1 to 0.9.1)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, Field

from ..schemas.errors import ConfigError
from ..schemas.tool import ToolResponse, ToolSchema
from ..schemas.validation import validated
from .slots import Slots

ToolReturn = tuple[ToolResponse, float, dict[str, Any]]


class ToolConfig(BaseModel):
    """Base of each tool's `config:` block. Unknown keys are errors.

    Attributes:
        type: verl's, and `native` for every class.
        max_concurrency: calls of this tool that may run at a time in this process; more wait. None: no limit.
    """

    model_config = ConfigDict(extra="forbid")

    type: str = "native"
    max_concurrency: int | None = Field(default=None, ge=1)


@dataclass(frozen=True, slots=True)
class CallContext:
    """What a tool may know of the call it serves; passed to `execute` as `context=`.

    Under verl's own loop there is none, and tools must work without it.

    Attributes:
        turn: index of the assistant turn that made the call, from 0.
        deadline: `time.monotonic()` seconds by which the call must have answered.
        create_kwargs: what the data set gives this tool for the sample.
    """

    trajectory_id: str
    turn: int
    deadline: float
    create_kwargs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ground_truth(self) -> Any:
        """The sample's answer, where the data set put one into `create_kwargs`."""
        return self.create_kwargs.get("ground_truth")

    def remaining_s(self) -> float:
        return max(0.0, self.deadline - time.monotonic())


def create_kwargs_of(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The data set's `create_kwargs`, wherever the caller put them.

    verl 0.9 nests them (`create(create_kwargs={...})`); 0.7.1 and hand-written loops pass them flat.
    """
    nested = kwargs.get("create_kwargs")
    return dict(nested) if isinstance(nested, Mapping) else dict(kwargs)


class BaseTool:
    """A tool that a model can call.

    A subclass names its configuration model and default schema, and overrides `execute`; the rest where it has
    state. One object serves many trajectories at a time: state belongs to the instance id that `create` returns.
    The constructor does no I/O, because trainers build tools many times over (verl: in each agent-loop worker and
    again in the data set).

    Args:
        config: the YAML's `config:` block as a plain dictionary.
        tool_schema: the YAML's schema, ours or verl's model or a dictionary; None takes `default_schema`.

    Raises:
        ConfigError: the configuration or schema is wrong, or there is no schema at all.
    """

    config_model: ClassVar[type[ToolConfig]] = ToolConfig
    default_schema: ClassVar[dict[str, Any] | None] = None
    example: ClassVar[dict[str, Any] | None] = None
    """Arguments with which `rollbox tools check` calls the tool."""

    def __init__(self, config: dict[str, Any] | None = None, tool_schema: Any = None) -> None:
        where = type(self).__name__
        self.config = validated(self.config_model, config or {}, f"{where}: config")
        if self.config.type != "native":
            raise ConfigError(f"{where}: config.type: must be 'native' (got {self.config.type!r})")
        schema = tool_schema if tool_schema is not None else self.get_openai_tool_schema()
        if schema is None:
            raise ConfigError(f"{where}: no tool_schema was given and the class has no default_schema")
        if isinstance(schema, BaseModel) and not isinstance(schema, ToolSchema):
            schema = schema.model_dump(exclude_unset=True, exclude_none=True)
        self.tool_schema: ToolSchema = validated(ToolSchema, schema, f"{where}: tool_schema")
        self.name: str = self.tool_schema.function.name
        limit = self.config.max_concurrency
        self.slots = Slots(limit) if limit is not None else None

    def get_openai_tool_schema(self) -> ToolSchema | None:
        """The schema used when the YAML gives none."""
        if self.default_schema is None:
            return None
        return validated(ToolSchema, self.default_schema, f"{type(self).__name__}: default_schema")

    async def create(self, instance_id: str | None = None, **kwargs: Any) -> tuple[str, ToolResponse]:
        """Begin an instance, for one trajectory (Rollbox) or one call (verl's own loop)."""
        return instance_id or uuid4().hex, ToolResponse()

    async def execute(self, instance_id: str, parameters: dict[str, Any], **kwargs: Any) -> ToolReturn:
        """Run one call.

        Returns:
            (response for the model, step reward, metrics).

        Raises:
            ToolError: the model's doing; the text goes back to the model.
            InfraError: ours; the caller retries or masks the sample.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define execute")

    async def calc_reward(self, instance_id: str, **kwargs: Any) -> float:
        """The tool's own reward for the whole trajectory, asked once at its end."""
        return 0.0

    async def release(self, instance_id: str, **kwargs: Any) -> None:
        """End the instance. Always called, also after errors and cancellation; must not raise."""

    async def aclose(self) -> None:
        """Close what the tool holds for the whole process (connections). Not part of verl's contract."""
