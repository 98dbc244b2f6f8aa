"""What the loop needs of an inference engine: prompt ids in, sampled ids and logprobs out."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol, Self

from ...schemas.generation import SamplingParams, TokenOutput
from ..chat_template import Tokenizer


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
