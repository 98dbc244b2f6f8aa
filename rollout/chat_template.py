"""Token ids for what is not generated: the prompt, and tool messages as a delta of the chat template.

Generated ids are kept as sampled; rendering the whole conversation again would tokenise them anew and can give other
ids. So a tool message is rendered behind a stand-in for the turn before it, and only what the template adds after that
turn's end is tokenised. `ChatTemplate` proves at start-up that this equals the full render.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, cast

from ..schemas.errors import ConfigError
from ..schemas.tool import ToolSchema

_STAND_IN = [{"role": "user", "content": "question"}, {"role": "assistant", "content": "reply"}]


class Tokenizer(Protocol):
    """The part of a Hugging Face tokenizer that rollouts use."""

    eos_token: str | None
    eos_token_id: int | None

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]: ...

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool) -> str: ...

    def apply_chat_template(self, conversation: list[dict[str, Any]], **kwargs: Any) -> Any: ...


class ChatTemplate:
    """A tokenizer's chat template with a fixed set of tools.

    Args:
        tokenizer: must have a chat template and an end-of-turn token (`eos_token`).

    Raises:
        ConfigError: there is no template or end token, or a delta would not equal the full render.
    """

    def __init__(self, tokenizer: Tokenizer, tool_schemas: Sequence[ToolSchema]) -> None:
        if tokenizer.eos_token is None or tokenizer.eos_token_id is None:
            raise ConfigError("tokenizer: no eos_token; set it to the token that ends a turn (such as <|im_end|>)")
        self.tokenizer = tokenizer
        self._end_token: str = tokenizer.eos_token
        self.end_token_id: int = tokenizer.eos_token_id
        self._tools = [schema.as_template_dict() for schema in tool_schemas] or None
        self._check()

    def prompt_ids(self, messages: list[dict[str, Any]]) -> list[int]:
        """[P] ids of the conversation, ending where the assistant is to speak."""
        return self.encode(self._render(messages, generate=True))

    def context_ids(self, messages: list[dict[str, Any]]) -> list[int]:
        """Ids that go between a finished assistant turn (its end token included) and the next one.

        Args:
            messages: tool or user messages that follow the turn.
        """
        full = self._render([*_STAND_IN, *messages], generate=True)
        end = self._end_of_turn(self._render(_STAND_IN, generate=False))
        return self.encode(full[end:])

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of generated ids, without the end token. Other special tokens stay visible."""
        ids = list(token_ids)
        if ids and ids[-1] == self.end_token_id:
            ids.pop()
        return self.tokenizer.decode(ids, skip_special_tokens=False)

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without special tokens of its own."""
        return list(self.tokenizer.encode(text, add_special_tokens=False))

    def _check(self) -> None:
        # Two tool messages: templates such as Qwen2.5's merge neighbours into one turn.
        after = [{"role": "tool", "content": "12"}, {"role": "tool", "content": "a\nb"}]
        base = self._render(_STAND_IN, generate=False)
        full = self._render([*_STAND_IN, *after], generate=True)
        if not full.startswith(base[: self._end_of_turn(base)]):
            raise ConfigError(
                "chat template: it writes an assistant turn differently once a tool message follows; "
                "token-exact rollouts need a template that leaves earlier turns as they are"
            )
        whole = self.encode(full)
        parts = self.encode(base[: self._end_of_turn(base)]) + self.context_ids(after)
        if whole != parts:
            first = next((i for i, (a, b) in enumerate(zip(whole, parts, strict=False)) if a != b), len(parts))
            raise ConfigError(f"chat template: tool messages tokenise differently as a delta, from token {first} on")

    def _end_of_turn(self, rendered: str) -> int:
        at = rendered.rfind(self._end_token)
        if at < 0:
            raise ConfigError(
                f"chat template: an assistant turn does not end with the eos_token {self._end_token!r}; "
                "set eos_token to the token that ends a turn"
            )
        return at + len(self._end_token)

    def _render(self, messages: list[dict[str, Any]], *, generate: bool) -> str:
        try:
            return cast(
                str,
                self.tokenizer.apply_chat_template(
                    messages, tools=self._tools, tokenize=False, add_generation_prompt=generate
                ),
            )
        except Exception as error:
            raise ConfigError(f"chat template: cannot render {len(messages)} messages: {error}") from error
