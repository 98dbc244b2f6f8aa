"""Tools that were written for verl, as tools of our loop."""

from __future__ import annotations

from typing import Any

from ..schemas.errors import ConfigError
from ..schemas.tool import ToolResponse
from ..tools.base import BaseTool, ToolReturn

_METHODS = ("create", "execute", "calc_reward", "release")


def as_our_tool(tool: Any) -> BaseTool:
    """The tool itself when it is ours, else one that passes the calls on.

    Raises:
        ConfigError: it has not the methods of `verl.tools.base_tool.BaseTool`, such as a function tool.
    """
    if isinstance(tool, BaseTool):
        return tool
    missing = [name for name in _METHODS if not hasattr(tool, name)]
    if missing:
        raise ConfigError(
            f"tool {getattr(tool, 'name', tool)!r}: {type(tool).__name__} has no method {missing[0]!r}; rollbox_agent "
            "runs subclasses of rollbox.tools.base.BaseTool or verl.tools.base_tool.BaseTool (not function_tool_path)"
        )
    return ForeignTool(tool)


class ForeignTool(BaseTool):
    """One of verl's tools under our contract: arguments are checked and its response is read into our model."""

    def __init__(self, tool: Any) -> None:
        super().__init__(None, tool.tool_schema)
        self._tool = tool

    async def create(self, instance_id: str | None = None, **kwargs: Any) -> tuple[str, ToolResponse]:
        created_id, _ = await self._tool.create(instance_id, **kwargs)
        return created_id, ToolResponse()

    async def execute(self, instance_id: str, parameters: dict[str, Any], **kwargs: Any) -> ToolReturn:
        response, reward, metrics = await self._tool.execute(instance_id, parameters, **kwargs)
        read = ToolResponse(text=response.text, image=response.image, video=response.video)
        return read, reward or 0.0, metrics or {}

    async def calc_reward(self, instance_id: str, **kwargs: Any) -> float:
        reward: float = await self._tool.calc_reward(instance_id, **kwargs)
        return reward

    async def release(self, instance_id: str, **kwargs: Any) -> None:
        await self._tool.release(instance_id, **kwargs)
