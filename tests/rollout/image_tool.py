"""A tool that answers with pictures."""

from __future__ import annotations

from typing import Any, ClassVar

from rollbox.schemas.tool import ToolResponse
from rollbox.tools.base import BaseTool, ToolReturn


class ImageTool(BaseTool):
    """Answers with what `images` holds, whatever it is, and a text."""

    default_schema: ClassVar[dict[str, Any]] = {
        "type": "function",
        "function": {
            "name": "draw",
            "description": "Draws.",
            "parameters": {"type": "object", "properties": {"text": {"type": "string"}}},
        },
    }

    def __init__(self, *images: Any) -> None:
        super().__init__()
        self.images = list(images)

    async def execute(self, instance_id: str, parameters: dict[str, Any], **kwargs: Any) -> ToolReturn:
        return ToolResponse(text=parameters.get("text", "drawn"), image=self.images), 0.0, {}
