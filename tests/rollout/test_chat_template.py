"""Deltas of the chat template against the full render."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollbox.rollout.chat_template import ChatTemplate
from rollbox.schemas.errors import ConfigError
from rollbox.schemas.tool import ToolSchema

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


@given(st.lists(texts, min_size=1, max_size=4), texts)
@settings(max_examples=100, deadline=None)
def test_prompt_and_delta_equal_the_full_render(tokenizer: Any, outputs: list[str], reply: str) -> None:
    template = ChatTemplate(tokenizer, [TOOL])
    tools = [{"role": "tool", "content": text} for text in outputs]
    full = tokenizer.apply_chat_template(
        [USER, {"role": "assistant", "content": reply}, *tools],
        tools=[TOOL.as_template_dict()],
        tokenize=False,
        add_generation_prompt=True,
    )
    rendered_reply = tokenizer.encode(reply, add_special_tokens=False)
    if tokenizer.decode(rendered_reply) != reply or "<" in reply:
        return  # a reply that the tokenizer normalises is not what a model can have sampled
    ids = template.prompt_ids([USER]) + rendered_reply + [template.end_token_id] + template.context_ids(tools)
    assert tokenizer.decode(ids) == tokenizer.decode(tokenizer.encode(full, add_special_tokens=False))


def test_the_newline_after_the_end_token_belongs_to_the_delta(tokenizer: Any) -> None:
    ids = ChatTemplate(tokenizer, []).context_ids([{"role": "tool", "content": "5"}])
    assert tokenizer.decode(ids) == (
        "\n<|im_start|>user\n<tool_response>\n5\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
    )


def test_decode_leaves_out_only_the_end_token(tokenizer: Any) -> None:
    template = ChatTemplate(tokenizer, [])
    ids = tokenizer.encode("a<|im_start|>b<|im_end|>", add_special_tokens=False)
    assert template.decode(ids) == "a<|im_start|>b"


def test_a_template_that_rewrites_history_is_refused(tokenizer: Any) -> None:
    rewriting = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n"
        "{{ m.content if loop.last or m.role != 'assistant' else 'stripped' }}<|im_end|>\n{% endfor %}"
    )
    with pytest.raises(ConfigError, match="writes an assistant turn differently"):
        ChatTemplate(_Patched(tokenizer, rewriting), [])


def test_a_template_without_end_token_is_refused(tokenizer: Any) -> None:
    with pytest.raises(ConfigError, match="does not end with the eos_token"):
        ChatTemplate(_Patched(tokenizer, "{% for m in messages %}{{ m.content }}\n{% endfor %}"), [])


def test_a_template_that_cannot_be_rendered_is_refused(tokenizer: Any) -> None:
    with pytest.raises(ConfigError, match="cannot render"):
        ChatTemplate(_Patched(tokenizer, "{{ raise_exception('no tools here') }}"), [])


def test_a_tokenizer_without_end_token_is_refused(tokenizer: Any) -> None:
    with pytest.raises(ConfigError, match="no eos_token"):
        ChatTemplate(_Patched(tokenizer, eos_token=None), [])
