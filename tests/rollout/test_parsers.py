"""What holds for every tool-call format: round trips, any split of the text, no exception, linear time."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollbox.rollout.parsers import PARSERS, ToolCallParser, get_parser
from rollbox.rollout.parsers.scan import MAX_UNREADABLE
from rollbox.schemas.errors import ConfigError
from rollbox.schemas.tool import ToolCall, ToolSchema

NAMES = sorted(PARSERS)
JSON_FORMATS = ["deepseek", "gpt_oss", "hermes", "kimi", "llama3_json", "mistral"]
TYPED_FORMATS = ["glm", "qwen3_coder"]
each_format = pytest.mark.parametrize("name", NAMES)

# Every tag of every format, and what else decides where something ends.
PIECES = sorted(
    {tag for form in PARSERS.values() for tag in (*form.openers, *form.dropped, *itertools.chain(*form.think))}
    | {"</tool_call>", "</function>", "</parameter>", "<parameter=a>", "<function=f>", "</arg_value>", "<arg_value>"}
    | {"<arg_key>a</arg_key>", "</code>", "</search>", "```", "\n```", "\n", '">', "[ARGS]", "[CALL_ID]x9", " ", ";"}
    | {"<|message|>", "<|constrain|>json", " to=functions.f", " to=python", "analysis", "<|call|>", "<|end|>"}
    | {"<｜tool▁sep｜>", "<｜tool▁call▁end｜>", "<|tool_call_argument_begin|>", "<|tool_call_end|>", "functions.f:0"}
    | {"f", "{}", '{"a": 1}', '{"name": "f", "arguments": {"a": "b"}}', '{"name": "f", "parameters": {}}', '{"a": "'}
    | {
        "{'a': 1}",
        '{"a": 1,}',
        "[",
        "]",
        "{",
        "}",
        '"',
        "\\",
        "\\u00",
        "1",
        "tr",
        "-",
        "e",
        "é",
        '{"a": "\\ud83d"}',
        "\\ud83d",
        "x",
    }
)
fragments = st.lists(st.sampled_from(PIECES) | st.text(max_size=5), max_size=24).map("".join)
texts = st.lists(st.sampled_from(PIECES), max_size=8).map("".join) | st.text()
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
json_objects = st.dictionaries(texts, json_values, max_size=4)
typed_objects = st.dictionaries(st.from_regex(r"\A[a-z_]{1,8}\Z"), json_values, max_size=4)


def schema(name: str, arguments: dict[str, Any]) -> ToolSchema:
    """The schema of a tool that takes arguments of just these types."""
    kinds = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    properties = {key: {"type": kinds.get(type(value), "null")} for key, value in arguments.items()}
    function = {"name": name, "parameters": {"properties": properties, "required": list(properties)}}
    return ToolSchema.model_validate({"function": function})


def check_round_trip(parser: ToolCallParser, name: str, arguments: dict[str, Any], before: str = "") -> None:
    turn = parser.parse(before + parser.render(name, arguments))
    assert turn.problems == []
    assert turn.calls == [ToolCall(name=name, arguments=arguments)]
    assert turn.content == before.strip()


@pytest.mark.parametrize("name", JSON_FORMATS)
@given(arguments=json_objects)
@settings(max_examples=150, deadline=None)
def test_round_trip_of_json(name: str, arguments: dict[str, Any]) -> None:
    check_round_trip(get_parser(name), "f.g-h", arguments, "" if name == "llama3_json" else "Well. ")


@pytest.mark.parametrize("name", TYPED_FORMATS)
@given(arguments=typed_objects)
@settings(max_examples=200, deadline=None)
def test_round_trip_of_typed_text(name: str, arguments: dict[str, Any]) -> None:
    check_round_trip(get_parser(name, [schema("f", arguments)]), "f", arguments, "Well. ")


@pytest.mark.parametrize("name", TYPED_FORMATS)
@given(arguments=typed_objects.filter(lambda found: not any(isinstance(value, str) for value in found.values())))
@settings(max_examples=50, deadline=None)
def test_round_trip_without_schema(name: str, arguments: dict[str, Any]) -> None:
    check_round_trip(get_parser(name), "f", arguments)


@pytest.mark.parametrize("name", ["r1", "retool"])
@given(code=texts.filter(str.strip))
@settings(max_examples=300, deadline=None)
def test_round_trip_of_programs(name: str, code: str) -> None:
    check_round_trip(get_parser(name), "python", {"code": code}, "Well. ")


@given(query=texts.filter(str.strip))
@settings(max_examples=300, deadline=None)
def test_round_trip_of_queries(query: str) -> None:
    check_round_trip(get_parser("search_r1"), "search", {"query_list": [query]}, "Well. ")


def pieces_of(text: str, cuts: list[int]) -> list[str]:
    places = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    return [text[start:end] for start, end in itertools.pairwise(places)]


def check_split(parser: ToolCallParser, pieces: list[str]) -> None:
    stream = parser.stream()
    fed = [call for piece in pieces for call in stream.feed(piece)]
    turn = stream.finish()
    assert turn == parser.parse("".join(pieces))
    assert turn.calls[: len(fed)] == fed


@each_format
@given(text=fragments, cuts=st.lists(st.integers(0, 10**6), max_size=6), think_open=st.booleans())
@settings(max_examples=200, deadline=None)
def test_any_split_gives_the_same(name: str, text: str, cuts: list[int], think_open: bool) -> None:
    check_split(get_parser(name, think_open=think_open), pieces_of(text, cuts))


@each_format
@given(text=fragments)
@settings(max_examples=100, deadline=None)
def test_character_by_character(name: str, text: str) -> None:
    check_split(get_parser(name), list(text))


@each_format
@given(text=fragments)
@settings(max_examples=200, deadline=None)
def test_never_raises(name: str, text: str) -> None:
    turn = get_parser(name).parse(text)
    assert all(0 <= problem.position <= len(text) for problem in turn.problems)
    assert all(isinstance(call.arguments, dict) for call in turn.calls)


def example(name: str) -> tuple[str, str, dict[str, Any]]:
    arguments: dict[str, Any] = {"query_list": ["a"]} if name == "search_r1" else {"code": "print('</tool_call>')"}
    tool = "search" if name == "search_r1" else "python"
    return get_parser(name).render(tool, arguments), tool, arguments


@each_format
def test_a_call_is_reported_as_soon_as_it_is_whole(name: str) -> None:
    text, tool, arguments = example(name)
    stream = get_parser(name).stream()
    fed = stream.feed("Some words first. " if name != "llama3_json" else "")
    for char in text + "\n.":
        fed += stream.feed(char)
    assert fed == [ToolCall(name=tool, arguments=arguments)]


@pytest.mark.parametrize("name", [name for name in NAMES if PARSERS[name].think])  # gpt_oss has a channel for it
def test_calls_in_closed_reasoning_are_drafts(name: str) -> None:
    text, _, _ = example(name)
    turn = get_parser(name).parse(f"<think>{text}</think>{text}")
    assert len(turn.calls) == 1
    assert turn.draft_calls == 1
    assert turn.problems == []


@pytest.mark.parametrize("name", [name for name in NAMES if PARSERS[name].think and name != "mistral"])
def test_reasoning_that_the_prompt_opened(name: str) -> None:
    text, _, _ = example(name)
    turn = get_parser(name, think_open=True).parse(f"Perhaps {text}?</think>{text}")
    assert len(turn.calls) == 1
    assert turn.draft_calls >= 1


@each_format
def test_a_turn_of_noise_is_given_up(name: str) -> None:
    form = PARSERS[name]
    turn = get_parser(name).parse(f"{form.openers[0]} \n{{broken </tool_call></code></search>" * 1000)
    assert len(turn.problems) <= MAX_UNREADABLE + 1


def adversaries(name: str) -> list[Callable[[int], str]]:
    """Texts of about n characters that make a careless parser look again and again at the same stretch."""
    form, (call, _, _) = PARSERS[name], example(name)
    openers = [*form.openers, "<think>", "</think>", "</tool_call>", "</parameter>", "{", "["]
    nested = [tag * 3 + "{" for tag in form.openers] + ['{"a":' * 2, call[: len(call) * 2 // 3], call[1:]]
    return [lambda n, unit=unit: unit * (n // len(unit)) for unit in [*openers, *nested, call, call + " words\n"]] + [
        lambda n: form.openers[0] + " " * n,
        lambda n: form.openers[0] + '{"a": "' + "\\" * n,
        lambda n: form.openers[0] + "python" + "\n</parameter> " * (n // 14),
        lambda n: call[: len(call) // 2] + "x</tool_call>y</code>y" * (n // 21),
    ]


def check_linear(work: Callable[[str], object], adversary: Callable[[int], str], small: int) -> None:
    """CPU times of two sizes, compared generously: what is quadratic takes 64 times as long on 8 times the text."""
    for _ in range(3):  # another process may take the caches away during a measurement
        taken = []
        for n in (small, 8 * small):
            text = adversary(n)
            started = time.process_time()
            work(text)
            taken.append(time.process_time() - started)
        if taken[1] < 0.1 or taken[1] < 30 * taken[0]:
            return
    pytest.fail(
        f"{taken[0]:.3f} s for {small} characters, {taken[1]:.3f} s for 8 times as many: {adversary(80)[:80]!r}"
    )


@each_format
def test_time_is_linear(name: str) -> None:
    for adversary in adversaries(name):
        check_linear(get_parser(name).parse, adversary, 32_768)


@each_format
def test_feeding_single_characters_is_linear(name: str) -> None:
    def feed(text: str) -> None:
        stream = get_parser(name).stream()
        for char in text:
            stream.feed(char)
        stream.finish()

    for adversary in adversaries(name)[:3]:
        check_linear(feed, adversary, 4096)


@pytest.mark.parametrize("name", ["retool", "search_r1"])
def test_what_a_format_cannot_write_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="can only write"):
        get_parser(name).render("python", {"code": "1", "more": 2})


def test_an_unknown_format_names_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"no tool-call format 'hermse'.*did you mean 'hermes'.*There are: deepseek"):
        get_parser("hermse")


@each_format
def test_json_text_in_an_answer_is_not_a_call(name: str) -> None:
    text = "The list is " + json.dumps({"name": "f", "arguments": {"a": 1}}) + "."
    turn = get_parser(name).parse(text)
    assert (turn.calls, turn.problems, turn.content) == ([], [], text)


@each_format
def test_half_a_surrogate_pair_becomes_a_character(name: str) -> None:
    text, _, _ = example(name)
    text = text.replace("print", "\\ud83dprint").replace('"a"', '"\\ud83d\\ud83d\\ude00"')
    for call in get_parser(name).parse(text).calls:
        assert "\ud83d" not in str(call.arguments)
        call.model_dump_json()


def test_mended_characters_are_flagged() -> None:
    [call, whole] = (
        get_parser("hermes")
        .parse(
            '<tool_call>{"name": "f", "arguments": {"a": "\\ud83d"}}</tool_call>'
            '<tool_call>{"name": "f", "arguments": {"a": "\\ud83d\\ude00"}}</tool_call>'
        )
        .calls
    )
    assert (call.arguments, call.repaired) == ({"a": "\ufffd"}, True)
    assert (whole.arguments, whole.repaired) == ({"a": "\U0001f600"}, False)
