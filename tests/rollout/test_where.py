"""`rollbox where`: names of ours, and who wins where several fit."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rollbox.rewards.registry import REGISTRY
from rollbox.rollout.where import origins
from rollbox.tools_config import FOLDER


@pytest.mark.parametrize(
    ("name", "kind", "place", "selected_by"),
    [
        ("openai/gsm8k", "score function", "gsm8k.py:", "data_source=openai/gsm8k"),
        ("searchR1_nq", "score function", "search_qa.py:", "data_source=searchR1_nq"),
        ("overlong", "reward part", "reward_config.py:", "parts.NAME.kind=overlong"),
        ("hermes", "tool-call format", "parsers/", " actor_rollout_ref.rollout.multi_turn.format=rollbox_hermes"),
        ("rollbox_hermes", "tool-call format", "parsers/", "--parser hermes"),
        ("calculator", "tool", "tools/calculator", "--tools "),
        ("SearchTool", "tool", "search.py:", " actor_rollout_ref.rollout.multi_turn.tool_config_path=tools_config/"),
    ],
)
def test_names_of_ours(name: str, kind: str, place: str, selected_by: str) -> None:
    found = next(origin for origin in origins(name) if origin.kind == kind)
    assert place in found.place
    assert selected_by in found.selected_by


def test_who_wins_is_said() -> None:
    REGISTRY.score("test/where*", "test/where_longer*")(lambda *_: 0.0)
    longer, shorter = origins("test/where_longer_yet")
    assert (longer.name, longer.note) == ("test/where_longer*", "wins over 'test/where*'")
    assert (shorter.name, shorter.note) == ("test/where*", "loses to 'test/where_longer*'")


FILE = """
modules: [own.py]
outcomes: {"test_where/of*": openai/gsm8k}
parts: {outcome: , neat: {kind: format, weight: 0.5}}
"""


def test_files_of_the_users_are_looked_at(tmp_path: Path) -> None:
    (tmp_path / "rewards.yaml").write_text(FILE)
    (tmp_path / "own.py").write_text(
        "from rollbox.rewards.registry import score\n"
        "@score('test_where/*')\n"
        "def own(solution_str, ground_truth, extra_info):\n    return 0.0\n"
    )
    file = tmp_path / "rewards.yaml"
    first, second = origins("test_where/office", file)
    assert (first.name, first.selected_by) == ("openai/gsm8k", f"outcomes.test_where/of* of {file}")
    assert (second.place, second.note) == (f"{tmp_path}/own.py:2", f"loses to outcomes.test_where/of* of {file}")
    [alone] = origins("test_where/plain", file)
    assert (alone.name, alone.note) == ("test_where/*", "")
    [part] = origins("neat", file)
    assert (part.kind, part.note) == ("part of the rewards file", "kind format, weight 0.5")
    shutil.copy(FOLDER / "calculator.yaml", tmp_path / "mine.yaml")
    assert next(origins("calculator", tools=[tmp_path / "mine.yaml"])).selected_by.startswith(
        f"rollbox rollout --tools {tmp_path}/mine"
    )


def test_a_part_that_names_its_function_wins_over_the_data_source(tmp_path: Path) -> None:
    file = tmp_path / "rewards.yaml"
    file.write_text(
        "outcomes: {searchR1_nq: rollbox/search_strict}\n"
        "parts: {outcome: {function: rollbox/search_f1},\n"
        "        other: {kind: outcome, data_sources: [math*], function: math}}\n"
    )
    found = list(origins("searchR1_nq", file))
    assert [(origin.name, origin.selected_by, origin.note) for origin in found] == [
        ("rollbox/search_f1", f"parts.outcome.function of {file}", "wins in part 'outcome'"),
        ("rollbox/search_strict", f"outcomes.searchR1_nq of {file}", "wins over the rest in other parts"),
        (
            "searchR1_*",
            "data_source=searchR1_nq; `outcomes` in the rewards file",
            f"loses to outcomes.searchR1_nq of {file}",
        ),
    ]


def test_a_module_is_loaded_first(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from rollbox.rewards.registry import score\n"
        "@score('test_where_cli')\n"
        "def mine(solution_str, ground_truth, extra_info):\n    return 0.0\n"
    )
    command = [sys.executable, "-m", "rollbox.cli", "where", "test_where_cli", "--module", str(tmp_path / "mine.py")]
    result = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert result.returncode == 0, result.stderr
    assert f"registered: {tmp_path}/mine.py:2" in result.stdout


def test_an_unknown_name_is_one_line() -> None:
    command = [sys.executable, "-m", "rollbox.cli", "where", "no_such_thing"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert result.returncode == 2
    assert "where: nothing has the name 'no_such_thing'" in result.stderr
