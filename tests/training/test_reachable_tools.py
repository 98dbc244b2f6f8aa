"""What stops or warns before a training run."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from rollbox.schemas.errors import ConfigError
from rollbox.training.reachable_tools import check_agent_loop, check_response_length

TOOLS = {"multi_turn": {"enable": True, "tool_config_path": "tools.yaml"}}


@pytest.mark.parametrize(
    ("rollout", "names"),
    [
        (TOOLS, ["tool_agent"] * 3),
        (TOOLS, ["tool_agent", "single_turn_agent"]),
        ({**TOOLS, "agent": {"default_agent_loop": "tool_agent"}}, [None, None]),
        ({"multi_turn": {"enable": False}}, [None]),
        ({}, [None]),
        (TOOLS, []),
    ],
)
def test_wiring_that_is_right_or_on_purpose(rollout: dict[str, Any], names: list[str | None]) -> None:
    check_agent_loop(rollout, names)


@pytest.mark.parametrize(
    ("rollout", "names", "said"),
    [
        (TOOLS, [None, "tool_agent"], "1 of 2 rows would run 'single_turn_agent'"),
        (TOOLS, ["single_turn_agent"], "1 of 1 rows"),
        ({**TOOLS, "agent": {"default_agent_loop": None}}, [None], "agent.default_agent_loop is 'single_turn_agent'"),
        ({"multi_turn": {"function_tool_path": "f.py"}}, ["tool_agent"], r"multi_turn\.enable: False"),
    ],
)
def test_tools_that_no_row_can_reach(rollout: dict[str, Any], names: list[str | None], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        check_agent_loop(rollout, names)


def test_short_answers_are_warned_of_where_they_would_be_cut(caplog: pytest.LogCaptureFixture) -> None:
    ours = {"agent": {"default_agent_loop": "rollbox_agent"}}
    with caplog.at_level(logging.WARNING):
        check_response_length({}, ["tool_agent"])
        check_response_length({"multi_turn": {"max_tool_response_length": 4000}}, ["tool_agent"])
        check_response_length({}, ["rollbox_agent", None])
        check_response_length(ours, [None])
        assert len(caplog.records) == 1
        check_response_length(ours, [None, "tool_agent"])
    assert [record.args for record in caplog.records] == [(256, 1000)] * 2
