"""The differences between the releases of verl that our tools and their YAML run under; the one place for them.

| | 0.7.1 | 0.8.0 | 0.9.1 |
|---|---|---|---|
| tool registry | `tools.utils.tool_registry` | `tools.tool_registry` | the same |
| tools are built | for each trajectory | in the worker | in the worker |
| model server of a worker | `server_manager`, set before | an argument | an argument |
"""

from __future__ import annotations

import importlib
from importlib.metadata import version
from typing import Any

from verl.experimental.agent_loop.agent_loop import AgentLoopWorker

VERSION = version("verl")


def load_tools_as_verl_does(file: str) -> list[Any]:
    """Every tool of a YAML file through verl's own loader."""
    module = "verl.tools.utils.tool_registry" if VERSION.startswith("0.7") else "verl.tools.tool_registry"
    tools: list[Any] = importlib.import_module(module).initialize_tools_from_config(file)
    return tools


def make_agent_loop_worker(config: Any, client: Any, reward_handles: list[Any]) -> Any:
    """verl's agent-loop worker in this process, whose model speaks through `client`."""
    if not VERSION.startswith("0.7"):
        return AgentLoopWorker(config, client, None, reward_handles)

    class Worker(AgentLoopWorker):  # type: ignore[misc]
        def __init__(self, *args: Any) -> None:
            self.server_manager = client
            super().__init__(*args)

    return Worker(config, [], None, reward_handles)
