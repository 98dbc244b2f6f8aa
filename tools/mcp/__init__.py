"""Tools of Model Context Protocol servers. Needs the optional extra `mcp`."""

from .tool import McpConfig, McpTool, load_mcp_tools

__all__ = ["McpConfig", "McpTool", "load_mcp_tools"]
