"""A trajectory's page: turns with their calls, and everything that a record knows."""

from __future__ import annotations

import re

import pytest

from rollbox.viewer.conversation import turns
from rollbox.viewer.pages import time_split
from rollbox.viewer.shown_text import thinking_apart

from .conftest import ORDINARY
from .made_trajectories import call, trajectory
from .page_client import Viewer


def test_calls_are_paired_with_what_the_model_was_told() -> None:
    made = trajectory(
        [
            ("first", [(call(0, 0), "42"), (call(0, 1, tool="python", arguments={"code": "1"}), "1")]),
            ("then", [(call(1, 0, tool="search", arguments={"query": "x"}), "found")]),
            ("#### 42", []),
        ]
    )
    found = turns(made)
    assert [[(str(c.name), str(c.output.head) if c.output else None) for c in turn.calls] for turn in found] == [
        [("calculator", "42"), ("python", "1")],
        [("search", "found")],
        [],
    ]
    assert [(turn.start, turn.end) for turn in found] == [(0, 5), (8, 12), (17, 24)]


def test_a_call_that_could_not_be_read_has_its_record_and_answer() -> None:
    problem = call(0, 0, tool="", arguments=None, error_kind="parse", error="cannot be read", executed=False)
    (turn,) = turns(trajectory([("<tool_call>{", [(problem, "cannot be read")])]))
    (only,) = turn.calls
    assert only.arguments is None
    assert only.record is problem
    assert only.error is None
    assert only.output is not None
    assert turn.errors == 1


def test_calls_without_a_message_or_a_record_are_shown_too() -> None:
    made = trajectory([("a", [(call(0, 0), "42")])])
    without_output = made.model_copy(update={"messages": made.messages[:-1]})
    assert turns(without_output)[0].calls[0].output is None
    without_record = made.model_copy(update={"records": []})
    (only,) = turns(without_record)[0].calls
    assert (only.record, str(only.name)) == (None, "calculator")


def test_worked_examples_in_the_prompt_are_no_turns() -> None:
    made = trajectory([("answer", [])])
    examples = [{"role": "user", "content": "1 + 1"}, {"role": "assistant", "content": "2"}, *made.sample.messages]
    sample = made.sample.model_copy(update={"messages": examples})
    made = made.model_copy(update={"sample": sample, "messages": [*examples, made.messages[-1]]})
    (turn,) = turns(made)
    assert [str(part.head) for _, part in turn.message.parts] == ["answer"]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("plain", [(False, "plain")]),
        ("<think>a</think>\n\nb", [(True, "a"), (False, "b")]),
        ("<think>never closed", [(True, "never closed")]),
        ("opened in the prompt</think>b", [(True, "opened in the prompt"), (False, "b")]),
        ("a<think>b</think>c<think>d</think>", [(False, "a"), (True, "b"), (False, "c"), (True, "d")]),
        ("<think></think>", []),
    ],
)
def test_thinking_is_told_apart(text: str, parts: list[tuple[bool, str]]) -> None:
    assert thinking_apart(text) == parts


def test_the_time_bar_adds_up_and_bears_what_is_no_time() -> None:
    bars = time_split({"generate": 3.0, "queue": 0.0, "run": 1.0, "other": -0.1})
    assert [(name, start, width) for name, _, start, width in bars] == [("generate", 0, 75), ("run", 75, 25)]
    assert time_split({"generate": float("nan"), "run": float("inf")}) == []


def test_the_page_shows_what_the_record_knows(viewer: Viewer) -> None:
    text = viewer.get(f"/t/{ORDINARY + 13}").text
    for said in ("2 retries", "repaired", "cached", "truncated", "run 0.4 ms", "queue 0.0 ms", "No arguments."):
        assert said in text
    assert "Coerced: &lt;script&gt;" in viewer.get(f"/t/{ORDINARY + 10}").text
    unread = viewer.get(f"/t/{ORDINARY + 12}").text
    assert "unreadable call" in unread
    assert "not run" in unread
    masked = viewer.get(f"/t/{ORDINARY + 11}").text
    assert "Masked: something of ours failed" in masked
    assert "Ended by <b>infra</b>" in masked


def test_rewards_by_part_and_by_turn(viewer: Viewer) -> None:
    text = viewer.get("/t/1").text
    assert re.search(r'scope="row">format</th><td class="num pos">\+0\.100', text)
    assert "By turn" in text
