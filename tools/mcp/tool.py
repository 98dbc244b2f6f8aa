"""McpTool: a tool that lives on an MCP server."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from ...schemas.errors import ConfigError, ErrorKind, InfraError, ToolError
from ...schemas.tool import ToolResponse
from ...schemas.validation import nearest, validated
from ..base import BaseTool, CallContext, ToolConfig, ToolReturn
from ..config_values import anchored
from ..images import read_images, with_notes
from . import connection
from .connection import McpConnection
from .server import McpServer


class McpConfig(ToolConfig, McpServer):
    """The server, as in `McpServer`, and one of its tools.

    Attributes:
        tool: its name on the server; by default the name in the schema.
        timeout_sec: seconds that a call may take.
        repeatable: calling twice does no harm, so a call that the server died in may be made again. Set from the
            server's own hints where the tools are loaded by `type: mcp`.
    """

    tool: str | None = None
    timeout_sec: float = Field(default=60.0, gt=0, le=3600)
    repeatable: bool = False


class McpServerConfig(ToolConfig, McpServer):
    """A whole server, for `type: mcp`. `tools` names those to take; None takes them all."""

    type: str = "mcp"
    tools: tuple[str, ...] | None = Field(default=None, min_length=1)
    timeout_sec: float = Field(default=60.0, gt=0, le=3600)


class McpTool(BaseTool):
    """Connects at its first call; every tool of one server shares the connection.

    The schema must be given, since a constructor asks nobody: `type: mcp` in the YAML fetches it, and
    `rollbox tools check` prints it.
    """

    config_model: ClassVar[type[ToolConfig]] = McpConfig
    config: McpConfig

    def __init__(self, config: dict[str, Any] | None = None, tool_schema: Any = None) -> None:
        super().__init__(config, tool_schema)
        given = self.config.model_dump(include=set(McpServer.model_fields))
        self._server = McpServer.model_validate(given)

    async def execute(self, instance_id: str, parameters: dict[str, Any], **kwargs: Any) -> ToolReturn:
        """Call the tool on its server.

        Raises:
            ToolError: the server says that the call was wrong, or the tool that it failed.
            InfraError: the server cannot be reached, went away in the middle, or did not answer in time.
        """
        if not isinstance(parameters, dict):
            raise ToolError(f"the arguments of {self.name!r} must be an object", ErrorKind.ARGUMENTS)
        context = kwargs.get("context")
        timeout_s = self.config.timeout_sec
        if isinstance(context, CallContext):
            timeout_s = min(timeout_s, context.remaining_s())
        server = connection.acquire(self._server, self)
        name = self.config.tool or self.name
        result, retries = await server.call(name, parameters, timeout_s, repeatable=self.config.repeatable)
        text, sent = read_content(result)
        if result.is_error:
            raise ToolError(text or "The tool failed.", ErrorKind.USER_CODE)
        images, problems = await asyncio.to_thread(read_images, sent) if sent else ([], [])
        text = with_notes(text, problems) or "Done."
        return (
            ToolResponse(text=text, image=images or None),
            0.0,
            {"retries": retries, "images_left_out": len(problems)},
        )

    async def aclose(self) -> None:
        await connection.release(self._server, self)


def load_mcp_tools(config: Mapping[str, Any], folder: Path) -> list[McpTool]:
    """Ask a server for its tools. Connects, and disconnects again; works inside a running event loop too.

    Args:
        config: as `McpServerConfig`. folder: from which relative paths count.

    Raises:
        ConfigError: wrong settings, the server does not answer, or it has no such tool or a schema that is none.
    """
    settings = validated(McpServerConfig, anchored(dict(config), McpServerConfig, folder), "config")
    server = McpServer.model_validate(settings.model_dump(include=set(McpServer.model_fields)))
    try:
        offered = {tool.name: tool for tool in _listed(server)}
    except InfraError as error:
        raise ConfigError(f"config: {error}") from error
    for name in settings.tools or ():
        if name not in offered:
            advice = nearest(name, list(offered))
            known = ", ".join(offered)
            raise ConfigError(f"config.tools: the server {server} has no tool {name!r}{advice or '.'} It has: {known}")
    chosen = settings.tools or tuple(offered)
    shared = settings.model_dump(exclude={"type", "tools"}, exclude_unset=True)
    return [_tool_of(offered[name], shared) for name in chosen]


def read_content(result: Any) -> tuple[str, list[str]]:
    """The text of a `CallToolResult` for the model, and its images in base64."""
    texts: list[str] = []
    images: list[str] = []
    for block in result.content:
        match block.type:
            case "text":
                texts.append(block.text)
            case "image":
                images.append(block.data)
            case "resource":
                texts.append(getattr(block.resource, "text", f"[{block.resource.uri}]"))
            case "resource_link":
                texts.append(f"[{block.uri}]")
            case kind:
                texts.append(f"[{kind}]")
    if not texts and not images and result.structured_content is not None:
        texts.append(json.dumps(result.structured_content, ensure_ascii=False))
    return "\n".join(texts), images


def _tool_of(offered: Any, shared: dict[str, Any]) -> McpTool:
    hints = offered.annotations
    repeatable = bool(hints is not None and (hints.read_only_hint or hints.idempotent_hint))
    function = {"name": offered.name, "description": offered.description or "", "parameters": offered.input_schema}
    return McpTool({**shared, "tool": offered.name, "repeatable": repeatable}, {"function": function})


def _listed(server: McpServer) -> Sequence[Any]:
    async def ask() -> list[Any]:
        asked = McpConnection(server)
        try:
            return await asked.list_tools(server.connect_timeout_sec)
        finally:
            await asked.aclose()

    answer: list[Any] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            answer.extend(asyncio.run(ask()))
        except BaseException as error:  # noqa: BLE001 - raised again by whoever waits
            failure.append(error)

    # In a thread: the caller may be inside an event loop of its own, which cannot run another.
    thread = threading.Thread(target=run, name="mcp tools", daemon=True)
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return answer
