"""The hermes parser on what models really write."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rollbox.rollout.parsers import get_parser

parse = get_parser("hermes").parse


def block(text: str) -> str:
    return f"<tool_call>\n{text}\n</tool_call>"


def calls(text: str) -> list[tuple[str, dict[str, Any], bool]]:
    return [(call.name, call.arguments, call.repaired) for call in parse(text).calls]


def test_p01_apostrophe_is_left_alone_and_python_dict_is_repaired(cases: dict[str, Any]) -> None:
    case = cases["P01"]["input"]
    assert calls(case["a"]) == [("search", {"query": "Euler's totient of 36"}, False)]
    assert calls(case["b"]) == [("calculator", {"expression": "7 * 6", "exact": True}, True)]


def test_p02_closing_tag_inside_a_string(cases: dict[str, Any]) -> None:
    [(name, arguments, repaired)] = calls(cases["P02"]["input"])
    assert (name, repaired) == ("python", False)
    assert arguments == {"code": "tag = '</tool_call>'\nprint(len(tag))"}


def test_p04_two_objects_in_one_block(cases: dict[str, Any]) -> None:
    assert [arguments["expression"] for _, arguments, _ in calls(cases["P04"]["input"])] == ["3**5", "5**3"]


def test_p05_broken_arguments_never_become_empty(cases: dict[str, Any]) -> None:
    case = cases["P05"]["input"]
    assert calls(case["a"]) == [("python", {"code": "print(1)"}, True)]
    cut = parse(case["b"])
    assert cut.calls == []
    [problem] = cut.problems
    assert "incomplete" in problem.message
    assert problem.position == 0


def test_p06_a_draft_inside_think_is_not_run(cases: dict[str, Any]) -> None:
    turn = parse(cases["P06"]["input"])
    assert [call.arguments for call in turn.calls] == [{"expression": "144**0.5"}]
    assert turn.draft_calls == 1
    assert turn.problems == []


def test_think_inside_a_call_is_not_thinking() -> None:
    code = "print('<think>')"
    assert calls(block(json.dumps({"name": "python", "arguments": {"code": code}}))) == [
        ("python", {"code": code}, False)
    ]


def test_an_unclosed_think_hides_nothing() -> None:
    turn = parse("<think>so " + block('{"name": "f", "arguments": {}}'))
    assert len(turn.calls) == 1
    assert turn.draft_calls == 0


def test_text_around_calls_is_kept() -> None:
    turn = parse("before " + block('{"name": "f", "arguments": {}}') + " after")
    assert turn.content == "before  after"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (block(""), "is empty"),
        (block("not json"), "not valid JSON"),
        (block('{"arguments": {"a": 1}}'), "has no 'name'"),
        (block('{"name": "f"}'), "no 'arguments' object"),
        (block('{"name": "f", "arguments": [1]}'), "no 'arguments' object"),
        (block('{"name": "f", "arguments": "not an object"}'), "no 'arguments' object"),
        (block('{"name": "f", "arguments": {"a": "1}}'), "not valid JSON"),
        ('<tool_call>{"name": "f", "arguments": {"a": "', "incomplete"),
        (block('{"name": "f", "arguments": {"a": undefined}}'), "not valid JSON"),
        (block("[1, 2]"), "not valid JSON"),
        (block('{"name": "f", "arguments": {"a": 1}} trailing words'), "not valid JSON"),
    ],
)
def test_what_cannot_be_read_is_told_to_the_model(text: str, said: str) -> None:
    problems = parse(text).problems
    assert len(problems) == 1
    assert said in problems[0].message


def test_one_bad_call_does_not_cost_its_neighbours() -> None:
    good = block('{"name": "f", "arguments": {"a": 1}}')
    turn = parse(good + block("{broken") + good)
    assert len(turn.calls) == 2
    assert len(turn.problems) == 1


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        (block('{"name": "f", "arguments": {"code": "a\nb"}}'), {"code": "a\nb"}),
        (block('{"name": "f", "arguments": "{\\"a\\": 1}"}'), {"a": 1}),
        (block('{"name": "f", "arguments": {"a": [1, 2,], "b": "x,}",},}'), {"a": [1, 2], "b": "x,}"}),
        (block('{"name": "f", "parameters": {"a": null}}'), {"a": None}),
        (block('{"name": "f", "arguments": {"a": 1}'), {"a": 1}),
        (block('{"name": "f", "arguments": {"code": "print("hi")"}}'), {"code": 'print("hi")'}),
        (block('{name: "f", arguments: {a: [1, 2]}}'), {"a": [1, 2]}),
        (block('{"function": {"name": "f", "arguments": "{\\"a\\": 1}"}}'), {"a": 1}),
    ],
)
def test_safe_repairs(text: str, arguments: dict[str, Any]) -> None:
    assert [call.arguments for call in parse(text).calls] == [arguments]


def test_a_forgotten_closing_tag_at_the_end_is_tolerated() -> None:
    assert calls('<tool_call>\n{"name": "f", "arguments": {"a": 1}}') == [("f", {"a": 1}, False)]


def test_nothing_in_a_call_is_evaluated(tmp_path: Any) -> None:
    target = tmp_path / "written"
    parse(block(f"{{'name': 'f', 'arguments': {{'a': open({str(target)!r}, 'w')}}}}"))
    assert not target.exists()


def test_a_turn_of_noise_is_given_up() -> None:
    turn = parse(block("{broken") * 1000)
    assert len(turn.problems) == 33
    assert "Nothing was read after 32" in turn.problems[-1].message
