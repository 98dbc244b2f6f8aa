"""`rollbox where`: names of ours, and who wins where several fit."""

from __future__ import annotations

import subprocess
import sys

import pytest

from rollbox.rewards.registry import REGISTRY, place_of
from rollbox.rollout.where import origins


@pytest.mark.parametrize(
    ("name", "kind", "place", "selected_by"),
    [
        ("openai/gsm8k", "score function", "gsm8k.py:", "data_source=openai/gsm8k"),
        ("searchR1_nq", "score function", "search_qa.py:", "data_source=searchR1_nq"),
        ("overlong", "reward part", "reward_config.py:", "parts.NAME.kind=overlong"),
        ("hermes", "tool-call format", "parsers/", "multi_turn.format=rollbox_hermes"),
        ("rollbox_hermes", "tool-call format", "parsers/", "--parser hermes"),
        ("calculator", "tool", "tools/calculator", "--tools "),
        ("SearchTool", "tool", "search.py:", "tool_config_path"),
    ],
)
def test_names_of_ours(name: str, kind: str, place: str, selected_by: str) -> None:
    found = next(origin for origin in origins(name) if origin.kind == kind)
    assert place in found.place
    assert selected_by in found.selected_by


def test_who_wins_is_said() -> None:
    REGISTRY.score("test/where*", "test/where_longer*")(place_of)
    longer, shorter = origins("test/where_longer_yet")
    assert (longer.name, longer.note) == ("test/where_longer*", "wins over 'test/where*'")
    assert (shorter.name, shorter.note) == ("test/where*", "loses to 'test/where_longer*'")


def test_an_unknown_name_is_one_line() -> None:
    command = [sys.executable, "-m", "rollbox.cli", "where", "no_such_thing"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert result.returncode == 2
    assert "where: nothing has the name 'no_such_thing'" in result.stderr
