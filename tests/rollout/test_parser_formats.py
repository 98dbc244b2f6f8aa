"""Each format on what its models really write, and on what they get wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rollbox.rollout.parsers import ParsedTurn, get_parser
from rollbox.schemas.tool import ToolSchema

SEARCH = ToolSchema.model_validate(
    {
        "function": {
            "name": "search",
            "parameters": {
                "properties": {"query_list": {"type": "array"}, "k": {"type": "integer"}, "why": {"type": "string"}},
                "required": ["query_list"],
            },
        }
    }
)
PYTHON = ToolSchema.model_validate(
    {"function": {"name": "run", "parameters": {"properties": {"code": {"type": "string"}}, "required": ["code"]}}}
)
DS = "<｜tool▁calls▁begin｜>{}<｜tool▁calls▁end｜>"
DS_CALL = "<｜tool▁call▁begin｜>{}<｜tool▁sep｜>{}<｜tool▁call▁end｜>"


def parse(name: str, text: str) -> ParsedTurn:
    return get_parser(name, [SEARCH, PYTHON]).parse(text)


READ: list[tuple[str, str, list[tuple[str, Any]]]] = [
    (
        "qwen3_coder",
        (
            '<tool_call>\n<function=search>\n<parameter=query_list>\n["a", "b"]\n</parameter>\n<parameter=k>\n3\n'
            "</parameter>\n<parameter=why>\n5\n</parameter>\n</function>\n</tool_call>"
        ),
        [("search", {"query_list": ["a", "b"], "k": 3, "why": "5"})],
    ),
    (
        "qwen3_coder",
        "<function=run>\n<parameter=code>\nprint('</parameter>')\nx = 1\n</parameter>\n</function>",
        [("run", {"code": "print('</parameter>')\nx = 1"})],
    ),
    ("qwen3_coder", "<tool_call><function=run><parameter=code>1</parameter></tool_call>", [("run", {"code": "1"})]),
    (
        "qwen3_coder",
        "<tool_call><function=now></function><function=now></function></tool_call>",
        [("now", {}), ("now", {})],
    ),
    (
        "qwen3_coder",
        '<tool_call><function=unknown><parameter=a>[1]</parameter><parameter=b>"q"</parameter></function></tool_call>',
        [("unknown", {"a": [1], "b": '"q"'})],
    ),
    (
        "glm",
        (
            '<tool_call>search\n<arg_key>query_list</arg_key>\n<arg_value>["a"]</arg_value>\n<arg_key>why</arg_key>\n'
            "<arg_value>null</arg_value>\n</tool_call>"
        ),
        [("search", {"query_list": ["a"], "why": "null"})],
    ),
    ("glm", "<tool_call>run<arg_key>code</arg_key><arg_value> x </arg_value></tool_call>", [("run", {"code": " x "})]),
    ("glm", "<tool_call>now</tool_call>", [("now", {})]),
    ("llama3_json", '{"name": "f", "parameters": {"a": "}"}}', [("f", {"a": "}"})]),
    ("llama3_json", '\n{"type": "function", "name": "f", "parameters": {}}<|eom_id|>', [("f", {})]),
    (
        "llama3_json",
        '<|python_tag|>{"name": "f", "parameters": {"a": 1}}; {"name": "g", "parameters": {}}',
        [("f", {"a": 1}), ("g", {})],
    ),
    ("llama3_json", 'Let me see. <|python_tag|>{"name": "f", "arguments": {}}', [("f", {})]),
    ("llama3_json", '{"answer": 5}', []),
    (
        "mistral",
        '[TOOL_CALLS] [{"name": "f", "arguments": {"a": "[/x]"}}, {"name": "g", "arguments": {}}]',
        [("f", {"a": "[/x]"}), ("g", {})],
    ),
    ("mistral", '[TOOL_CALLS]f[ARGS]{"a": 1}[TOOL_CALLS]g[CALL_ID]a1B2[ARGS]{}</s>', [("f", {"a": 1}), ("g", {})]),
    ("mistral", '[TOOL_CALLS]f{"a": 1}', [("f", {"a": 1})]),
    ("mistral", "[THINK][TOOL_CALLS]f[ARGS]{}[/THINK]no", []),
    (
        "deepseek",
        DS.format(DS_CALL.format("f", '{"a": 1}') + "\n" + DS_CALL.format("g", "{}")),
        [("f", {"a": 1}), ("g", {})],
    ),
    ("deepseek", DS.format(DS_CALL.format("function", 'f\n```json\n{"a": "```"}\n```')), [("f", {"a": "```"})]),
    (
        "kimi",
        (
            "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>"
            '{"a": 1}<|tool_call_end|>'
            "<|tool_call_begin|>g:1<|tool_call_argument_begin|> {} <|tool_call_end|><|tool_calls_section_end|>"
        ),
        [("f", {"a": 1}), ("g", {})],
    ),
    (
        "gpt_oss",
        '<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a": "<|call|>"}<|call|>',
        [("f", {"a": "<|call|>"})],
    ),
    ("gpt_oss", '<|start|>assistant to=functions.f<|channel|>commentary json<|message|>{"a": 1}', [("f", {"a": 1})]),
    ("gpt_oss", "<|channel|>analysis to=python code<|message|>print(1)<|call|>", [("python", {"code": "print(1)"})]),
    ("r1", '<tool_call name="run">\nprint("</tool_call>")\n</tool_call>', [("run", {"code": 'print("</tool_call>")'})]),
    (
        "r1",
        '<tool_call name="python">1</tool_call> and <tool_call name="python">2</tool_call> so.',
        [("python", {"code": "1"}), ("python", {"code": "2"})],
    ),
    ("r1", '<tool_call name="search">\n{"query_list": ["a"]}\n</tool_call>', [("search", {"query_list": ["a"]})]),
    ("r1", '<tool_call name="search">capital of Peru</tool_call>', [("search", {"query_list": ["capital of Peru"]})]),
    ("retool", "<code>\n```python\nprint(1)\n```\n</code>", [("run", {"code": "print(1)"})]),
    (
        "retool",
        "<code>print('</code>')\nx</code>\n<code>y</code>",
        [("run", {"code": "print('</code>')\nx"}), ("run", {"code": "y"})],
    ),
    (
        "retool",
        "So:\n```python\na = '```'\nprint(a)\n```\nand ```json\n{}\n```",
        [("run", {"code": "a = '```'\nprint(a)"})],
    ),
    ("search_r1", "I need <search> capital of Peru </search> now", [("search", {"query_list": [" capital of Peru "]})]),
]


@pytest.mark.parametrize(("name", "text", "expected"), READ, ids=[f"{name}-{i}" for i, (name, _, _) in enumerate(READ)])
def test_what_models_write(name: str, text: str, expected: list[tuple[str, Any]]) -> None:
    turn = parse(name, text)
    assert [(call.name, call.arguments) for call in turn.calls] == expected
    assert turn.problems == []
    assert not any(call.repaired for call in turn.calls)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("llama3_json", "<|python_tag|>{'name': 'f', 'parameters': {'a': True}}", {"a": True}),
        ("mistral", '[TOOL_CALLS]f[ARGS]{"a": 1,}', {"a": 1}),
        ("mistral", "[TOOL_CALLS][{'name': 'f', 'arguments': {'a': 1}}]", {"a": 1}),
        ("deepseek", DS_CALL.format("function", "f\n```json\n{'a': None}\n```"), {"a": None}),
        (
            "kimi",
            "<|tool_call_begin|>f<|tool_call_argument_begin|>{'a': 1}<|tool_call_end|>",
            {"a": 1},
        ),
        ("gpt_oss", "<|channel|>commentary to=functions.f<|message|>{'a': 1}<|call|>", {"a": 1}),
    ],
)
def test_repairs_are_flagged(name: str, text: str, expected: dict[str, Any]) -> None:
    [call] = parse(name, text).calls
    assert (call.arguments, call.repaired) == (expected, True)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("qwen3_coder", "<tool_call>\n{}\n</tool_call>", "has no <function=...>"),
        ("qwen3_coder", "<tool_call><function=></function></tool_call>", "names no function"),
        ("qwen3_coder", "<tool_call><function=f>1</function></tool_call>", "where <parameter=...> is expected"),
        ("qwen3_coder", "<tool_call><function=f><parameter=a>1</function></tool_call>", "without </parameter>"),
        ("qwen3_coder", "<tool_call><function=f><parameter=a>1", "incomplete"),
        ("glm", "<tool_call></tool_call>", "names no tool"),
        ("glm", "<tool_call>f<arg_key>a</arg_key></tool_call>", "<arg_key> without <arg_value>"),
        ("glm", "<tool_call>f<arg_key>a</arg_key><arg_value>1</tool_call>", "<arg_value> without its end"),
        ("glm", "<tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value>", "incomplete"),
        ("llama3_json", '{"name": "f", "parameters": {"a": ', "incomplete"),
        ("llama3_json", "<|python_tag|>print(1)", "not a JSON object"),
        ("llama3_json", '{"name": "f", "parameters": [1]}', "no 'arguments' object"),
        ("llama3_json", '{"name": "f", "parameters": {"a": }}', "not valid JSON"),
        ("mistral", '[TOOL_CALLS]f[ARGS]{"a": 1', "incomplete"),
        ("mistral", "[TOOL_CALLS]f[ARGS]", "has no arguments object"),
        ("mistral", "[TOOL_CALLS][]", "is empty"),
        ("mistral", "[TOOL_CALLS]!", "names no tool"),
        ("deepseek", DS_CALL.format("", "{}"), "names no tool"),
        ("deepseek", "<｜tool▁call▁begin｜>f<｜tool▁sep｜>{", "incomplete"),
        ("deepseek", DS_CALL.format("f", "{oops}"), "not a JSON object"),
        ("kimi", "<|tool_call_begin|> <|tool_call_argument_begin|>{}<|tool_call_end|>", "names no tool"),
        ("kimi", "<|tool_call_begin|>f<|tool_call_argument_begin|><|tool_call_end|>", "no arguments object"),
        ("gpt_oss", "<|channel|>commentary to=functions.f<|message|>{<|call|>", "not a JSON object"),
        ("gpt_oss", '<|channel|>commentary to=functions.f<|message|>{"a": "', "incomplete"),
        ("r1", '<tool_call name="python"></tool_call>', "is empty"),
        ("r1", '<tool_call name="python">print(', "incomplete"),
        ("r1", '<tool_call name="search">{words}</tool_call>', "not a JSON object"),
        ("retool", "<code></code>", "is empty"),
        ("retool", "```python\nprint(1)", "incomplete"),
        ("search_r1", "<search> </search>", "is empty"),
        ("search_r1", "<search>never", "incomplete"),
    ],
)
def test_what_cannot_be_read_is_told(name: str, text: str, said: str) -> None:
    turn = parse(name, "Well.\n" * (name != "llama3_json") + text)
    assert turn.calls == []
    [problem] = turn.problems
    assert said in problem.message
    assert problem.position == (0 if name == "llama3_json" else 6)
    assert f"character {problem.position}" in problem.message


def test_a_parameter_that_was_not_closed_does_not_swallow_the_next_call() -> None:
    good = "<tool_call><function=f><parameter=a>1</parameter></function></tool_call>"
    turn = parse("qwen3_coder", good.replace("</parameter>", "") + good)
    assert [call.arguments for call in turn.calls] == [{"a": 1}]
    assert len(turn.problems) == 1


def test_gpt_oss_reasoning_is_no_content_and_its_sketches_are_drafts() -> None:
    text = (
        "<|channel|>analysis<|message|>I might use to=functions.f here.<|end|><|start|>assistant"
        "<|channel|>commentary<|message|>One moment. <|end|><|start|>assistant<|channel|>commentary to=functions.g "
        "<|constrain|>json<|message|>{}<|call|><|start|>assistant<|channel|>final<|message|>Done.<|return|>"
    )
    turn = parse("gpt_oss", text)
    assert [call.name for call in turn.calls] == ["g"]
    assert turn.draft_calls == 1
    assert turn.content == "One moment. Done."


def test_p08_a_value_is_never_evaluated(cases: dict[str, Any], tmp_path: Path) -> None:
    case, written = cases["P08"]["input"], tmp_path / "pwned_by_parser"
    case_schema = ToolSchema.model_validate({"function": {**case["schema"], "description": "Search."}})
    text = case["text"].replace("/tmp/pwned_by_parser", str(written))
    turn = get_parser("qwen3_coder", [case_schema]).parse(text)
    assert not written.exists()
    assert turn.calls[0].arguments == {"query_list": f"[open('{written}','w').write('x')]"}


def test_section_tags_are_no_content() -> None:
    text = "Hi " + DS.format(DS_CALL.format("f", "{}")) + "<｜end▁of▁sentence｜>"
    assert parse("deepseek", text).content == "Hi"
