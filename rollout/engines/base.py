"""What the loop needs of an inference engine: prompt ids in, sampled ids and logprobs out; or messages in, text out."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self, runtime_checkable

from ...schemas.generation import FinishReason, SamplingParams, TokenOutput
from ..chat_template import Tokenizer
from ..parsers import ParsedTurn


class Engine(Protocol):
    """An owner of a model; an async context manager.

    Attributes:
        tokenizer: the model's own. max_context: tokens of prompt and response together.
    """

    tokenizer: Tokenizer
    max_context: int

    async def generate(self, request_id: str, prompt_ids: list[int], sampling: SamplingParams) -> TokenOutput:
        """Sample one continuation. `request_id` is the trajectory's, the same in each of its turns.

        Raises:
            EngineError: the engine failed; the trajectory is to be masked.
        """
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class ChatReply:
    """A turn as a chat server gives it.

    Attributes:
        text: the whole turn; calls that the server has read are written out in the hermes format.
        parsed: the turn as the server took it apart; None where it left that to us.
    """

    text: str
    finish_reason: FinishReason
    parsed: ParsedTurn | None = None


@runtime_checkable
class ChatEngine(Protocol):
    """A server that takes messages and answers with text. What it samples is not known in tokens.

    Attributes:
        tokenizer: a local one, to count with; it need not be the model's. max_context: in tokens of the server's.
    """

    tokenizer: Tokenizer
    max_context: int

    async def reply(
        self, request_id: str, messages: list[dict[str, Any]], tools: list[dict[str, Any]], sampling: SamplingParams
    ) -> ChatReply:
        """Sample the next turn.

        Args:
            messages: as in `Trajectory.messages`. tools: in OpenAI's layout.

        Raises:
            EngineError: the server failed; the trajectory is to be masked.
        """
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None: ...


AnyEngine = Engine | ChatEngine
