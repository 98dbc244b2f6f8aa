"""Tokenizer and chat template of the demo model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rollbox.demo.questions import generate, lessons, tool_list
from rollbox.demo.tokenizer import MARKER_TOKENS, SPECIAL_TOKENS, build_tokenizer, save_tokenizer

SYSTEM = "<|im_start|>system\nTools: calculator(expression), python(code)<|im_end|>\n"


def _render(tokenizer: Any, messages: list[dict[str, Any]], **kwargs: Any) -> str:
    return str(tokenizer.apply_chat_template(messages, tokenize=False, **kwargs))


def _call(name: str, arguments: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


def test_is_the_same_each_time(tokenizer: Any) -> None:
    assert build_tokenizer().get_vocab() == tokenizer.get_vocab()


@pytest.mark.parametrize("text", [*SPECIAL_TOKENS, *MARKER_TOKENS, "\n", *"0123456789"])
def test_is_one_token(tokenizer: Any, text: str) -> None:
    assert len(tokenizer.encode(text, add_special_tokens=False)) == 1


def test_only_chatml_tokens_are_special(tokenizer: Any) -> None:
    special = {tokenizer.convert_ids_to_tokens(token_id) for token_id in tokenizer.all_special_ids}
    assert special <= set(SPECIAL_TOKENS)
    assert tokenizer.eos_token == "<|im_end|>"
    kept = tokenizer.decode(tokenizer.encode("<tool_call>x</tool_call><|im_end|>"), skip_special_tokens=True)
    assert kept == "<tool_call>x</tool_call>"


@pytest.mark.parametrize("text", ["naïve 3×4 €\t\n\n", "日本語", "<|im_start|>user\n1<|im_end|>\n", '{"a": "b\\n"}'])
def test_decodes_what_it_encoded(tokenizer: Any, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text


def test_loaded_beside_a_qwen2_config_it_gives_the_same_ids(tokenizer: Any, tmp_path: Path) -> None:
    from transformers import AutoTokenizer, Qwen2Config

    Qwen2Config().save_pretrained(tmp_path)
    save_tokenizer(tokenizer, tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    for lesson in lessons("heldout", 40, seed=1):
        text = _render(tokenizer, lesson.messages, tools=tool_list())
        assert _render(loaded, lesson.messages, tools=tool_list()) == text
        assert loaded.encode(text, add_special_tokens=False) == tokenizer.encode(text, add_special_tokens=False)


def test_prompts_are_short(tokenizer: Any) -> None:
    for sample in generate("heldout", 200, seed=1):
        text = _render(tokenizer, sample.messages, tools=tool_list(), add_generation_prompt=True)
        assert len(tokenizer.encode(text, add_special_tokens=False)) < 120


def test_a_prefix_of_the_conversation_renders_as_a_prefix(tokenizer: Any) -> None:
    for lesson in lessons("train", 40, seed=1):
        full = _render(tokenizer, lesson.messages, tools=tool_list())
        for count in range(1, len(lesson.messages)):
            prefix = lesson.messages[:count]
            opens_turn = lesson.messages[count]["role"] == "assistant"
            text = _render(tokenizer, prefix, tools=tool_list(), add_generation_prompt=opens_turn)
            assert full.startswith(text)
            ids = tokenizer.encode(text, add_special_tokens=False)
            assert tokenizer.encode(full, add_special_tokens=False)[: len(ids)] == ids


def test_renders_a_call_as_hermes_does(tokenizer: Any) -> None:
    arguments = {"code": 'a = "é<b>&\'"\nprint(a)', "n": 2, "deep": {"z": [1, None, True], "a": 0.5}}
    messages = [{"role": "assistant", "content": "", "tool_calls": [_call("python", arguments)]}]
    written = json.dumps({"name": "python", "arguments": arguments}, ensure_ascii=False)
    assert _render(tokenizer, messages) == f"<|im_start|>assistant\n<tool_call>\n{written}\n</tool_call><|im_end|>\n"


def test_renders_arguments_given_as_a_string_unchanged(tokenizer: Any) -> None:
    messages = [{"role": "assistant", "content": None, "tool_calls": [_call("python", '{"code":  "1"}')]}]
    assert '"arguments": {"code":  "1"}}\n' in _render(tokenizer, messages)


def test_renders_words_then_calls_and_merges_tool_messages(tokenizer: Any) -> None:
    calls = [_call("calculator", {"expression": "1 + 1"}), _call("calculator", {"expression": "2 + 2"})]
    messages = [
        {"role": "assistant", "content": "<think>Two.</think>", "tool_calls": calls},
        {"role": "tool", "content": "2"},
        {"role": "tool", "content": "4"},
        {"role": "assistant", "content": "#### 4"},
    ]
    assert _render(tokenizer, messages) == (
        "<|im_start|>assistant\n<think>Two.</think>\n"
        '<tool_call>\n{"name": "calculator", "arguments": {"expression": "1 + 1"}}\n</tool_call>\n'
        '<tool_call>\n{"name": "calculator", "arguments": {"expression": "2 + 2"}}\n</tool_call><|im_end|>\n'
        "<|im_start|>user\n<tool_response>\n2\n</tool_response>\n<tool_response>\n4\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n#### 4<|im_end|>\n"
    )


def test_system_turn_holds_the_tools_and_the_given_system_message(tokenizer: Any) -> None:
    user = {"role": "user", "content": [{"type": "text", "text": "hi"}]}
    turn = "<|im_start|>user\nhi<|im_end|>\n"
    assert _render(tokenizer, [user], tools=tool_list()) == SYSTEM + turn
    assert _render(tokenizer, [user]) == turn
    system = {"role": "system", "content": "Be brief."}
    assert _render(tokenizer, [system, user], tools=tool_list()) == SYSTEM.replace("Tools", "Be brief.\nTools") + turn
    assert _render(tokenizer, [system, user]) == "<|im_start|>system\nBe brief.<|im_end|>\n" + turn


def test_a_tool_without_parameters_is_listed(tokenizer: Any) -> None:
    tools = [{"type": "function", "function": {"name": "now"}}]
    assert "Tools: now()<|im_end|>" in _render(tokenizer, [{"role": "user", "content": "hi"}], tools=tools)
