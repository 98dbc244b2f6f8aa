"""Our formats as verl's tool parsers, and a turn that cannot be read in verl's own loop."""

from __future__ import annotations

import json
from typing import Any

import pytest
from verl.experimental.agent_loop.tool_parser import ToolParser
from verl.tools.schemas import OpenAIFunctionToolSchema

from rollbox.rollout.parsers import PARSERS, get_parser
from rollbox.training.tool_parsers import PREFIX

pytestmark = pytest.mark.verl

TOOLS = [
    OpenAIFunctionToolSchema.model_validate(
        {
            "type": "function",
            "function": {
                "name": name,
                "description": name,
                "parameters": {
                    "type": "object",
                    "properties": {parameter: {"type": kind, "description": "x"}},
                    "required": [parameter],
                },
            },
        }
    )
    for name, parameter, kind in (("python", "code", "string"), ("search", "query_list", "array"))
]


async def extract(name: str, tokenizer: Any, text: str) -> tuple[str, list[tuple[str, Any]]]:
    parser = ToolParser.get_tool_parser(PREFIX + name, tokenizer)
    ids = [*tokenizer.encode(text, add_special_tokens=False), tokenizer.eos_token_id]
    content, calls = await parser.extract_tool_calls(ids, TOOLS)
    return content, [(call.name, json.loads(call.arguments)) for call in calls]


@pytest.mark.parametrize("name", sorted(PARSERS))
async def test_every_format_reads_its_calls(name: str, tokenizer: Any) -> None:
    tool, arguments = ("search", {"query_list": ["5"]}) if name == "search_r1" else ("python", {"code": "5"})
    text = get_parser(name).render(tool, arguments)
    assert await extract(name, tokenizer, text) == ("", [(tool, arguments)])


async def test_content_has_no_end_token(tokenizer: Any) -> None:
    assert await extract("hermes", tokenizer, "just words") == ("just words", [])


async def test_what_cannot_be_read_is_passed_on_for_verl_to_answer(tokenizer: Any) -> None:
    _, [(message, arguments)] = await extract("hermes", tokenizer, "<tool_call>{broken</tool_call>")
    assert "not valid JSON" in message
    assert arguments == {}


def test_verls_own_parsers_stay() -> None:
    assert type(ToolParser.get_tool_parser("hermes", None)).__module__.startswith("verl.")
