"""Deltas of the chat template against the full render."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollbox.rollout.chat_template import ChatTemplate
from rollbox.schemas.errors import ConfigError
from rollbox.schemas.tool import ToolSchema

from .chat_templates import FAMILIES, family_tokenizer

TOOL = ToolSchema.model_validate(
    {"type": "function", "function": {"name": "f", "parameters": {"properties": {"a": {"type": "string"}}}}}
)
USER = {"role": "user", "content": "What is 2 + 3?"}


class _Patched:
    """The tokenizer with another chat template."""

    def __init__(self, tokenizer: Any, template: str | None = None, eos_token: str | None = "") -> None:
        self._tokenizer = tokenizer
        self._template = template
        self.eos_token = tokenizer.eos_token if eos_token == "" else eos_token
        self.eos_token_id = None if self.eos_token is None else tokenizer.convert_tokens_to_ids(self.eos_token)
        self.encode, self.decode = tokenizer.encode, tokenizer.decode

    def apply_chat_template(self, conversation: list[dict[str, Any]], **kwargs: Any) -> Any:
        return self._tokenizer.apply_chat_template(conversation, chat_template=self._template, **kwargs)


texts = st.text(alphabet=st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=60)
THINKING = re.compile(r"<think>.*?</think>\s*|<think>\s*", re.DOTALL)


@pytest.fixture(scope="module")
def families() -> dict[str, Any]:
    return {name: family_tokenizer(name) for name in FAMILIES}


@pytest.mark.parametrize("family", FAMILIES)
@given(rounds=st.lists(st.lists(texts, min_size=1, max_size=3), min_size=1, max_size=3), tools=st.booleans())
@settings(max_examples=30, deadline=None)
def test_parts_put_together_are_the_full_render(
    families: dict[str, Any], family: str, rounds: list[list[str]], tools: bool
) -> None:
    """Prompt, turns and deltas against one render of everything, apart from thinking that the template hides."""
    tokenizer = families[family]
    template = ChatTemplate(tokenizer, [TOOL] if tools else [])
    turn: dict[str, Any] = {"role": "assistant", "content": "reply"}
    reply = "reply"
    if family == "mistral":  # there a tool message must follow a call
        function = {"name": "f", "arguments": {"a": "b"}}
        turn = {"role": "assistant", "content": "", "tool_calls": [{"id": "abcdefghi", "function": function}]}
        reply = '[TOOL_CALLS] [{"name": "f", "arguments": {"a": "b"}, "id": "abcdefghi"}]'
    messages, ids = [USER], template.prompt_ids([USER])
    for outputs in rounds:
        answers = [{"role": "tool", "content": text} for text in outputs]
        numbered = [message | {"tool_call_id": f"call{i:05}"} for i, message in enumerate(answers, start=1)]
        messages += [turn, *numbered]
        ids += [*tokenizer.encode(reply, add_special_tokens=False), *template.end_token_ids]
        ids += template.context_ids(answers)
    full = tokenizer.apply_chat_template(
        messages, tools=[TOOL.as_template_dict()] if tools else None, tokenize=False, add_generation_prompt=True
    )
    rendered = tokenizer.decode(tokenizer.encode(full, add_special_tokens=False))
    assert THINKING.sub("", tokenizer.decode(ids)) == THINKING.sub("", rendered)


@pytest.mark.parametrize(
    ("family", "keeps_thinking", "opens_thinking"),
    [
        ("qwen2.5", False, False),
        ("qwen3", True, False),
        ("r1-distill", True, True),
        ("llama3", False, False),
        ("smollm2", False, False),
        ("mistral", False, False),
    ],
)
def test_what_each_family_does_with_thinking(
    families: dict[str, Any], family: str, keeps_thinking: bool, opens_thinking: bool
) -> None:
    template = ChatTemplate(families[family], [TOOL])
    assert (template.keeps_thinking, template.opens_thinking) == (keeps_thinking, opens_thinking)


def test_variables_of_the_template_reach_it(families: dict[str, Any]) -> None:
    plain = ChatTemplate(families["qwen3"], [TOOL])
    silent = ChatTemplate(families["qwen3"], [TOOL], template_kwargs={"enable_thinking": False})
    closed = families["qwen3"].encode("<think>\n\n</think>\n\n", add_special_tokens=False)
    assert silent.prompt_ids([USER]) == plain.prompt_ids([USER]) + closed
    assert not silent.opens_thinking


def test_a_turn_that_ended_at_another_token_is_closed_first(tokenizer: Any) -> None:
    template = ChatTemplate(tokenizer, [], end_token_ids=[7])
    message = [{"role": "tool", "content": "5"}]
    assert template.has_ended([1, 7])
    assert not template.has_ended([1])
    assert not template.has_ended([])
    assert template.context_ids(message, ended=False) == [
        tokenizer.eos_token_id,
        *template.context_ids(message),
    ]


def test_tool_schemas_that_a_template_repeats_after_a_tool_message_stay_in_the_delta(tokenizer: Any) -> None:
    reminding = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
        "{% if m.role == 'tool' %}{{ tools | length if tools }}{% endif %}{% endfor %}"
    )
    template = ChatTemplate(_Patched(tokenizer, reminding), [TOOL, TOOL])
    assert tokenizer.decode(template.context_ids([{"role": "tool", "content": "5"}])).endswith("5<|im_end|>\n2")


def test_the_newline_after_the_end_token_belongs_to_the_delta(tokenizer: Any) -> None:
    ids = ChatTemplate(tokenizer, []).context_ids([{"role": "tool", "content": "5"}])
    assert tokenizer.decode(ids) == (
        "\n<|im_start|>user\n<tool_response>\n5\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
    )


def test_decode_leaves_out_only_the_end_token(tokenizer: Any) -> None:
    template = ChatTemplate(tokenizer, [])
    ids = tokenizer.encode("a<|im_start|>b<|im_end|>", add_special_tokens=False)
    assert template.decode(ids) == "a<|im_start|>b"


def test_a_template_that_rewrites_history_is_refused(tokenizer: Any, caplog: pytest.LogCaptureFixture) -> None:
    rewriting = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n"
        "{{ m.content if loop.last or m.role != 'assistant' else 'stripped' }}<|im_end|>\n{% endfor %}"
    )
    with pytest.raises(ConfigError, match=r"does not show the assistant's turn"):
        ChatTemplate(_Patched(tokenizer, rewriting), [])
    numbering = (
        "{% for m in messages %}<|im_start|>{{ m.role }} {{ messages | length }}\n"
        "{{ m.content }}<|im_end|>\n{% endfor %}"
    )
    with pytest.raises(ConfigError, match=r"written differently once more follows: '1.*becomes '6") as caught:
        ChatTemplate(_Patched(tokenizer, numbering), [])
    assert "check='warn'" in str(caught.value)
    ChatTemplate(_Patched(tokenizer, numbering), [], check="off")
    assert caplog.records == []
    ChatTemplate(_Patched(tokenizer, numbering), [], check="warn")
    assert "written differently" in caplog.text


def test_a_template_without_end_token_is_refused(tokenizer: Any) -> None:
    with pytest.raises(ConfigError, match="does not end with the eos_token"):
        ChatTemplate(_Patched(tokenizer, "{% for m in messages %}{{ m.content }}\n{% endfor %}"), [])


def test_a_template_that_cannot_be_rendered_is_refused(tokenizer: Any) -> None:
    with pytest.raises(ConfigError, match="cannot render"):
        ChatTemplate(_Patched(tokenizer, "{{ raise_exception('no tools here') }}"), [])


def test_a_tokenizer_without_end_token_is_refused(tokenizer: Any) -> None:
    with pytest.raises(ConfigError, match="no eos_token"):
        ChatTemplate(_Patched(tokenizer, eos_token=None), [])
