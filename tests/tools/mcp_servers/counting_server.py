"""A real MCP server, written with the SDK: `counting_server.py stdio` or `numbers.py http PORT`."""

from __future__ import annotations

import io
import logging
import os
import sys
import time

from mcp.server.mcpserver import Image, MCPServer
from mcp.types import ToolAnnotations

server = MCPServer("numbers", log_level="CRITICAL")


@server.tool()
def add(a: int, b: int = 2) -> int:
    """Add two numbers."""
    return a + b


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def process_id() -> str:
    """The server's process id."""
    return str(os.getpid())


@server.tool()
def fail() -> str:
    """Always fails."""
    raise ValueError("bad luck")


@server.tool()
def die() -> str:
    """Ends the server in the middle of the call."""
    os._exit(3)


@server.tool(annotations=ToolAnnotations(idempotent_hint=True))
def die_once(marker: str) -> str:
    """Ends the server, but only at the first call."""
    if not os.path.exists(marker):
        with open(marker, "w"):
            pass
        os._exit(3)
    return "alive"


@server.tool()
def sleep(seconds: float) -> str:
    """Sleeps."""
    time.sleep(seconds)
    return "slept"


@server.tool()
def picture() -> Image:
    """A red square."""
    from PIL import Image as Pillow

    buffer = io.BytesIO()
    Pillow.new("RGB", (3, 3), "red").save(buffer, "PNG")
    return Image(data=buffer.getvalue(), format="png")


if __name__ == "__main__":
    logging.disable()
    if sys.argv[1] == "stdio":
        server.run("stdio")
    else:
        server.run("streamable-http", port=int(sys.argv[2]))
