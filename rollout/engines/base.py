"""What the loop needs of an inference engine: prompt ids in, sampled ids and logprobs out; or messages in, text out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self, runtime_checkable

from ...schemas.generation import FinishReason, ImageInput, SamplingParams, TokenOutput
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


@runtime_checkable
class VisionEngine(Engine, Protocol):
    """An engine that takes images where its model does.

    Attributes:
        processor: the model's multimodal processor; None for a model that reads text only.
    """

    processor: Any

    async def generate(
        self, request_id: str, prompt_ids: list[int], sampling: SamplingParams, images: Sequence[ImageInput] = ()
    ) -> TokenOutput:
        """As `Engine.generate`.

        Args:
            images: in the order of the prompt, where each is as many tokens as the processor makes of it.

        Raises:
            EngineError: also where the engine makes another number of tokens of an image.
        """
        ...


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
        processor: a local multimodal processor, to count images with; None leaves them uncounted.
        takes_images: whether `reply` may be given images.
    """

    tokenizer: Tokenizer
    processor: Any
    max_context: int
    takes_images: bool

    async def reply(
        self,
        request_id: str,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]],
        sampling: SamplingParams,
        images: Sequence[Any] = (),
    ) -> ChatReply:
        """Sample the next turn.

        Args:
            messages: as in `Trajectory.messages`. tools: in OpenAI's layout.
            images: of Pillow, one for each image part of the messages.

        Raises:
            EngineError: the server failed; the trajectory is to be masked.
        """
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None: ...


AnyEngine = Engine | ChatEngine
