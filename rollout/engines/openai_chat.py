"""OpenAIChatEngine: any server with OpenAI's `/v1/chat/completions`; messages in, text out, so not token-exact."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...schemas.errors import EngineError
from ...schemas.generation import FinishReason, SamplingParams
from ...schemas.surrogates import without_lone_surrogates
from ...schemas.tool import ToolCall
from ..parsers import ParsedTurn, ParseProblem
from .base import ChatReply
from .chat_messages import wire_messages
from .data_uris import data_uris
from .http_client import EngineClient
from .served import ServedEngine
from .served_models import served_model

_FINISH: dict[str, FinishReason] = {"stop": "stop", "tool_calls": "stop", "function_call": "stop", "length": "length"}


class OpenAIChatEngine(ServedEngine):
    """For evaluation against what cannot take tokens. Calls that the server has read are taken as it read them.

    Args:
        urls: base address of the server, such as `http://127.0.0.1:8000`, or several of equal servers.
        tokenizer_dir: a local tokenizer to count with and to show texts by, which need not be the model's; None
            records no tokens, and `max_response_tokens` then bounds nothing.
        model: the served model's name; None asks the server.
        api_key: sent as a bearer token.
        takes_images: the server's model sees. None: it does where `tokenizer_dir` holds a processor for images.
        extra_body: further fields of each request.
        timeout_s, retry_s: see `EngineClient`.

    Raises:
        ConfigError: `urls` are no addresses; on entering: a server does not answer, or the tokenizer cannot be loaded.
    """

    takes_images: bool = False

    def __init__(
        self,
        urls: str | Sequence[str],
        tokenizer_dir: str | Path | None = None,
        *,
        model: str | None = None,
        api_key: str | None = None,
        chat_template: str | None = None,
        takes_images: bool | None = None,
        extra_body: Mapping[str, Any] | None = None,
        timeout_s: float = 600.0,
        retry_s: float = 30.0,
    ) -> None:
        client = EngineClient(urls, api_key=api_key, timeout_s=timeout_s, retry_s=retry_s)
        super().__init__(client, tokenizer_dir, chat_template)
        self._model = model
        self._given_takes_images = takes_images
        self._extra = dict(extra_body or {})

    async def _ask_servers(self) -> None:
        self._serves(await served_model(self._client, self._model))
        given = self._given_takes_images
        self.takes_images = self.processor is not None if given is None else given

    async def reply(
        self,
        request_id: str,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]],
        sampling: SamplingParams,
        images: Sequence[Any] = (),
    ) -> ChatReply:
        """Sample the next turn; see `ChatEngine.reply`.

        Raises:
            EngineError: the server failed, or answered with something else than a turn.
        """
        body = {
            "model": self.model_name,
            "messages": wire_messages(messages, await data_uris(images)),
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            **({"tools": tools} if tools else {}),
            **({"seed": sampling.seed} if sampling.seed is not None else {}),
            # Not OpenAI's own: sent only where they say something, to servers that know them.
            **({"top_k": sampling.top_k} if sampling.top_k else {}),
            **({"stop_token_ids": sampling.stop_token_ids} if sampling.stop_token_ids else {}),
            **self._extra,
        }
        return _read(await self._client.post("/v1/chat/completions", body, request_id))


def _read(answer: Any) -> ChatReply:
    try:
        choice = without_lone_surrogates(answer["choices"][0])
        message, reason = choice["message"], choice["finish_reason"]
        content = message.get("content") or ""
        functions = [call["function"] for call in message.get("tool_calls") or []]
        calls = [(str(function["name"]), str(function.get("arguments") or "{}")) for function in functions]
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise EngineError(f"the answer is not a chat completion: {error!r}") from error
    if reason not in _FINISH or not isinstance(content, str):
        raise EngineError(f"the server ended the turn with finish_reason={reason!r}")
    if not calls:
        return ChatReply(content, _FINISH[reason])
    blocks = [f'<tool_call>\n{{"name": {json.dumps(name)}, "arguments": {text}}}\n</tool_call>' for name, text in calls]
    return ChatReply("\n".join([content, *blocks] if content else blocks), _FINISH[reason], _taken(content, calls))


def _taken(content: str, calls: list[tuple[str, str]]) -> ParsedTurn:
    """The server's own reading; arguments that are no JSON object are told to the model."""
    turn = ParsedTurn(content=content)
    for name, text in calls:
        try:
            arguments = without_lone_surrogates(json.loads(text))
        except (ValueError, RecursionError):
            arguments = None
        if isinstance(arguments, dict):
            turn.calls.append(ToolCall(name=name, arguments=arguments))
        else:
            turn.problems.append(ParseProblem(0, f"The arguments of {name!r} are not a JSON object. It was not run."))
    return turn
