"""What verl does not say: settings that leave the tools unused, or cut what they answer."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from ..schemas.errors import ConfigError

logger = logging.getLogger(__name__)

SINGLE_TURN = "single_turn_agent"
TOOL_AGENT = "tool_agent"
_SHORT_RESPONSE_CHARS = 1_000
_TOOL_FILES = ("tool_config_path", "tools_config_file", "function_tool_path")


def check_agent_loop(rollout: Mapping[str, Any], agent_names: Iterable[str | None]) -> None:
    """Whether the data set's rows will run the loop that calls the tools.

    verl takes each row's loop from its column `agent_name`, else from `agent.default_agent_loop`, which is the loop
    without tools; it says nothing where tools are configured that no row can reach.

    Args:
        rollout: verl's `actor_rollout_ref.rollout`.
        agent_names: of the rows; None where a row has none.

    Raises:
        ConfigError: tools are configured, and every row runs without them; or some do and it is not on purpose, for
            they name no loop themselves.
    """
    multi_turn = rollout.get("multi_turn") or {}
    file = next((multi_turn[name] for name in _TOOL_FILES if multi_turn.get(name)), None)
    if file is None:
        return
    default = (rollout.get("agent") or {}).get("default_agent_loop") or SINGLE_TURN
    names = list(agent_names)
    without = sum((name or default) == SINGLE_TURN for name in names)
    unnamed = sum(name is None for name in names)
    if names and (without == len(names) or (unnamed and default == SINGLE_TURN)):
        raise ConfigError(
            f"rollout.multi_turn: the tools of {file!r} are configured, but {without} of {len(names)} rows would run "
            f"{SINGLE_TURN!r}, which calls no tool: {unnamed} rows have no agent_name and "
            f"agent.default_agent_loop is {default!r}. Set it to 'tool_agent', or fill the column agent_name"
        )
    if not multi_turn.get("enable", False):
        raise ConfigError(f"rollout.multi_turn.enable: False, but the tools of {file!r} are configured; set it to True")


def check_response_length(
    rollout: Mapping[str, Any], agent_names: Iterable[str | None], passage_chars: int = _SHORT_RESPONSE_CHARS
) -> None:
    """Warn where verl would cut the tools' answers in the middle: it keeps 256 characters unless told otherwise. Ours
    (`rollbox_agent`) does not read that setting.

    Args:
        agent_names: as in `check_agent_loop`. passage_chars: what an answer needs.
    """
    default = (rollout.get("agent") or {}).get("default_agent_loop") or SINGLE_TURN
    if not any((name or default) == TOOL_AGENT for name in agent_names):
        return
    limit = (rollout.get("multi_turn") or {}).get("max_tool_response_length", 256)
    if limit < passage_chars:
        logger.warning(
            "rollout.multi_turn.max_tool_response_length is %s characters: verl cuts longer answers of tools in the "
            "middle. Set it to %s or more; our tools bound their output themselves.",
            limit,
            passage_chars,
        )
