"""An engine that says given texts, to rehearse a rollout with the real tokenizer, template, parser and tools."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from ..rollout.chat_template import Tokenizer
from ..schemas.errors import EngineError
from ..schemas.generation import SamplingParams, TokenOutput


class RehearsalEngine:
    """Says one text a turn, each ended by the end token.

    Attributes:
        said: all ids so far.
    """

    def __init__(self, tokenizer: Tokenizer, texts: list[str], max_context: int) -> None:
        self.tokenizer = tokenizer
        self.max_context = max_context
        self.said: list[int] = []
        self._texts = list(texts)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        pass

    async def generate(self, request_id: str, prompt_ids: list[int], sampling: SamplingParams) -> TokenOutput:
        """See `Engine.generate`.

        Raises:
            EngineError: there is nothing left to say, or no room for it.
        """
        if not self._texts:
            raise EngineError("the rehearsal is over")
        assert self.tokenizer.eos_token_id is not None
        ids = [*self.tokenizer.encode(self._texts.pop(0), add_special_tokens=False), self.tokenizer.eos_token_id]
        if len(ids) > sampling.max_tokens:
            raise EngineError(f"a turn of {len(ids)} tokens does not fit into {sampling.max_tokens}")
        self.said += ids
        return TokenOutput(token_ids=ids, logprobs=[0.0] * len(ids), finish_reason="stop")
