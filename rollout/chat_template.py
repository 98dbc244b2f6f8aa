"""Token ids for what is not generated: the prompt, and tool messages as a delta of the chat template.

Generated ids are kept as sampled; rendering the whole conversation again would tokenise them anew and can give other
ids. So a tool message is rendered behind a stand-in for the turn before it, and only what the template adds after that
turn's end is tokenised. `ChatTemplate` proves at start-up, on a conversation with two rounds of tools, that a prompt,
turns and deltas put together are the full render.

One difference is meant: templates such as Qwen3's leave the thinking of earlier turns out when they render them again.
What the model sampled stays in its context here, so that the tokens that are trained are the tokens that were there.

An image is one placeholder in the template's text, and as many tokens as the model's processor makes of it. For a model
that sees, the same is proven with images, and against the processor's own reading of the full render.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, cast, get_args

from ..schemas.errors import ConfigError
from ..schemas.tool import ToolSchema
from .vision.image_tokens import ImageTokens

_logger = logging.getLogger(__name__)

Check = Literal["strict", "warn", "off"]

_MARKER = "rollboxstandin"
_QUESTION = {"role": "user", "content": "question"}
_IMAGE_PART = {"type": "image", "image": "images/0.png"}
_SEEN_QUESTION = {"role": "user", "content": [_IMAGE_PART, {"type": "text", "text": "question"}]}
_ANSWERING = {"role": "assistant", "content": _MARKER}
# For templates that refuse a tool message behind a turn that called none.
_CALLING = {
    "role": "assistant",
    "content": "",
    "tool_calls": [
        {"id": "call00001", "type": "function", "function": {"name": "tool", "arguments": {"text": _MARKER}}}
    ],
}
_THINKING = re.compile(r"<think>(?:(?!<think>).)*?</think>\s*|<think>\s*", re.DOTALL)


def check_mode(check: str) -> None:
    """
    Raises:
        ConfigError: it is no `Check`.
    """
    if check not in get_args(Check):
        raise ConfigError(f"template_check: {check!r} is not one of {', '.join(get_args(Check))}")


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
        check: what to do when the deltas do not add up to the full render: `strict` refuses, `warn` logs, `off` does
            not look.
        end_token_ids: further tokens that end a turn, such as Llama-3's `<|eom_id|>`.
        template_kwargs: further variables of the template, such as `{"enable_thinking": False}`.
        image_tokens: of a model that sees.

    Attributes:
        image_tokens: None where images cannot be shown, also because the template writes none in tool messages.
        end_token_ids: all that end a turn; the first is what the template writes.
        opens_thinking: the prompt ends inside an open `<think>`, so that the model writes only the end of it.
        keeps_thinking: the template would leave the thinking of earlier turns out; here it is kept as sampled.

    Raises:
        ConfigError: there is no template or end token, or a delta would not equal the full render.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        tool_schemas: Sequence[ToolSchema],
        *,
        check: Check = "strict",
        end_token_ids: Sequence[int] = (),
        template_kwargs: Mapping[str, Any] | None = None,
        image_tokens: ImageTokens | None = None,
    ) -> None:
        if tokenizer.eos_token is None or tokenizer.eos_token_id is None:
            raise ConfigError("tokenizer: no eos_token; set it to the token that ends a turn (such as <|im_end|>)")
        check_mode(check)
        self.tokenizer = tokenizer
        self._end_token: str = tokenizer.eos_token
        self.end_token_ids = (tokenizer.eos_token_id, *end_token_ids)
        self._kwargs = dict(template_kwargs or {})
        self._tools = [schema.as_template_dict() for schema in tool_schemas] or None
        self._delta_tools = self._tools
        self._stand_in = self._usable_stand_in()
        self.opens_thinking = self._render([_QUESTION]).rstrip().endswith("<think>")
        self.keeps_thinking = False
        self.image_tokens = image_tokens if image_tokens is not None and self._shows_images(image_tokens) else None
        if check != "off":
            self._check(check)
        self._leave_tools_out_of_deltas()

    def prompt_ids(self, messages: list[dict[str, Any]], image_counts: Sequence[int] = ()) -> list[int]:
        """[P] ids of the conversation, ending where the assistant is to speak.

        Args:
            image_counts: tokens of each image of the messages, in their order.
        """
        return self._expanded(self._render(messages), image_counts)

    def context_ids(
        self, messages: list[dict[str, Any]], *, ended: bool = True, image_counts: Sequence[int] = ()
    ) -> list[int]:
        """Ids that go between a finished assistant turn and the next one.

        Args:
            messages: tool or user messages that follow the turn.
            ended: the turn's last id is an end token. Otherwise (it ended at another stop token) one is put first.
            image_counts: as in `prompt_ids`.
        """
        text = self._delta(messages)
        return self._expanded(text if ended else self._end_token + text, image_counts)

    def _expanded(self, text: str, image_counts: Sequence[int]) -> list[int]:
        ids = self.encode(text)
        return self.image_tokens.expand(ids, image_counts) if self.image_tokens is not None else ids

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of generated ids, without the end token. Other special tokens stay visible."""
        ids = list(token_ids)
        if self.has_ended(ids):
            ids.pop()
        return self.tokenizer.decode(ids, skip_special_tokens=False)

    def has_ended(self, token_ids: Sequence[int]) -> bool:
        """Whether generated ids end with an end token."""
        return bool(token_ids) and token_ids[-1] in self.end_token_ids

    def _usable_stand_in(self) -> dict[str, Any]:
        """The assistant turn behind which this template renders tool messages."""
        failures: list[str] = []
        for turn in (_ANSWERING, _CALLING):
            try:
                rendered = self._render([_QUESTION, turn, *_tool_messages(["1"])])
            except ConfigError as error:
                failures.append(str(error))
                continue
            if _MARKER in rendered:
                return turn
            failures.append("chat template: it does not show the assistant's turn before a tool message")
        raise ConfigError(failures[0])

    def _delta(self, messages: list[dict[str, Any]]) -> str:
        """What the template writes after the end token of the turn before `messages`."""
        text = self._render_with(self._delta_tools, [_QUESTION, self._stand_in, *_with_ids(messages)])
        return text[self._end_of_turn(text) :]

    def _end_of_turn(self, rendered: str) -> int:
        """Where the last stand-in's turn ends."""
        at = rendered.find(self._end_token, rendered.rfind(_MARKER))
        if at < 0:
            raise ConfigError(
                f"chat template: an assistant turn does not end with the eos_token {self._end_token!r}; "
                "set eos_token to the token that ends a turn"
            )
        return at + len(self._end_token)

    def _shows_images(self, image_tokens: ImageTokens) -> bool:
        """Whether the template writes an image in a tool message as the processor's placeholder."""
        try:
            shown = image_tokens.placeholder in self._delta(_with_image(_tool_messages(["1"])))
        except ConfigError:
            shown = False
        if not shown:
            _logger.warning("chat template: it writes no image in a tool message; the model is shown text only")
        return shown

    def _check(self, check: Check) -> None:
        # Two tool messages: templates such as Qwen2.5's merge neighbours into one turn.
        first, second = _tool_messages(["12", "a\nb"]), _tool_messages(["3"])
        problem = self._text_problem(_QUESTION, first, second) or self._token_problem(_QUESTION, first)
        if problem is None and self.image_tokens is not None:
            problem = self._image_problem(self.image_tokens, first, second)
        if problem and check == "strict":
            raise ConfigError(f"chat template: {problem}; with check='warn' rollouts go on without being token-exact")
        if problem:
            _logger.warning("chat template: %s", problem)

    def _image_problem(
        self, image_tokens: ImageTokens, first: list[dict[str, Any]], second: list[dict[str, Any]]
    ) -> str | None:
        """The same comparisons with an image in the question and in tool messages."""
        first, second = _with_image(first), _with_image(second)
        if problem := self._text_problem(_SEEN_QUESTION, first, second):
            return f"with images {problem}"
        images = image_tokens.examples(2)
        counts = [image_tokens.count(image) for image in images]
        whole = image_tokens.processed_ids(self._render([_SEEN_QUESTION, self._stand_in, *first]), images)
        turn = self.encode(self._turn_text(self._render([_QUESTION])))
        parts = self.prompt_ids([_SEEN_QUESTION], counts[:1]) + turn + self.context_ids(first, image_counts=counts[1:])
        return None if parts == whole else f"with images {_first_difference(whole, parts)}"

    def _text_problem(
        self, question: dict[str, Any], first: list[dict[str, Any]], second: list[dict[str, Any]]
    ) -> str | None:
        """Compare a conversation put together from its parts with its full render."""
        full = self._render([question, self._stand_in, *first, self._stand_in, *second])
        prompt = self._render([question])
        turn = self._turn_text(self._render([_QUESTION]))
        parts = prompt + turn + self._delta(first) + turn + self._delta(second)
        if parts == full:
            return None
        if _THINKING.sub("", parts) == _THINKING.sub("", full):
            self.keeps_thinking = True
            return None
        at = next((i for i, (a, b) in enumerate(zip(parts, full, strict=False)) if a != b), min(len(parts), len(full)))
        return (
            "an earlier turn, or the messages after it, are written differently once more follows: "
            f"{parts[at : at + 40]!r} becomes {full[at : at + 40]!r}"
        )

    def _turn_text(self, prompt: str) -> str:
        """The stand-in's turn as a model would write it behind the prompt, its end token included."""
        text = self._render([_QUESTION, self._stand_in], generate=False)
        end = self._end_of_turn(text)
        if text.startswith(prompt):
            return text[len(prompt) : end]
        return text[text.rfind(_MARKER) : end]

    def _token_problem(self, question: dict[str, Any], messages: list[dict[str, Any]]) -> str | None:
        text = self._render([question, self._stand_in, *messages])
        end = self._end_of_turn(text)
        whole, parts = self.encode(text), self.encode(text[:end]) + self.encode(text[end:])
        return None if whole == parts else _first_difference(whole, parts)

    def _leave_tools_out_of_deltas(self) -> None:
        """The schemas are the longest part of a render; no known template repeats them after a tool message."""
        messages = _tool_messages(["12", "a\nb"])
        delta = self._delta(messages)
        self._delta_tools = None
        try:
            if self._delta(messages) == delta:
                return
        except ConfigError:
            pass  # a template may be written for tools only
        self._delta_tools = self._tools

    def _render(self, messages: list[dict[str, Any]], *, generate: bool = True) -> str:
        return self._render_with(self._tools, messages, generate)

    def _render_with(
        self, tools: list[dict[str, Any]] | None, messages: list[dict[str, Any]], generate: bool = True
    ) -> str:
        try:
            return cast(
                str,
                self.tokenizer.apply_chat_template(
                    messages, tools=tools, tokenize=False, add_generation_prompt=generate, **self._kwargs
                ),
            )
        except Exception as error:
            raise ConfigError(f"chat template: cannot render {len(messages)} messages: {error}") from error

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without special tokens of its own."""
        return list(self.tokenizer.encode(text, add_special_tokens=False))


def _tool_messages(texts: Sequence[str]) -> list[dict[str, Any]]:
    return _with_ids([{"role": "tool", "content": text} for text in texts])


def _with_ids(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Tool messages with the name and the id that some templates insist on (Mistral's: nine letters and digits)."""
    return [
        {"name": "tool", "tool_call_id": f"call{number:05}", **message} if message["role"] == "tool" else message
        for number, message in enumerate(messages, start=1)
    ]


def _with_image(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages, the first of them with an image before its text."""
    text = {"type": "text", "text": messages[0]["content"]}
    return [{**messages[0], "content": [_IMAGE_PART, text]}, *messages[1:]]


def _first_difference(whole: Sequence[int], parts: Sequence[int]) -> str:
    at = next((i for i, (a, b) in enumerate(zip(whole, parts, strict=False)) if a != b), min(len(whole), len(parts)))
    return f"tool messages tokenise differently as a delta, from token {at} on"
