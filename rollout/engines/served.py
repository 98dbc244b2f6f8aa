"""ServedEngine: what all engines of HTTP servers share: a client and a tokenizer, opened together, closed together."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ..chat_template import Tokenizer
from ..vision.processor import load_processor
from .http_client import EngineClient
from .served_models import ServedModel
from .tokenizer import Untokenized, load_tokenizer


class ServedEngine(ABC):
    """An async context manager. Without a `tokenizer_dir` no tokens are known.

    Attributes:
        processor: the multimodal processor that lies beside the tokenizer, if one does.
        model_name: that requests give. model_id: that, and where the servers have it from: what tells it from others.
    """

    tokenizer: Tokenizer
    processor: Any
    max_context: int
    model_name: str
    model_id: str

    def __init__(self, client: EngineClient, tokenizer_dir: str | Path | None, chat_template: str | None) -> None:
        self._client = client
        self._tokenizer_dir = tokenizer_dir
        self._chat_template = chat_template

    @abstractmethod
    async def _ask_servers(self) -> None:
        """Learn what is served, and call `_serves`.

        Raises:
            ConfigError: it cannot be used.
        """

    def _serves(self, model: ServedModel) -> None:
        self.model_name, self.max_context = model.name, model.max_context
        self.model_id = " at ".join((model.name, *model.paths))

    async def __aenter__(self) -> Self:
        if self._tokenizer_dir is None:
            self.tokenizer, self.processor = Untokenized(), None
        else:
            self.tokenizer = await asyncio.to_thread(load_tokenizer, self._tokenizer_dir, self._chat_template)
            self.processor = await asyncio.to_thread(load_processor, self._tokenizer_dir, self.tokenizer)
        await self._client.__aenter__()
        try:
            await self._ask_servers()
        except BaseException:
            await self._client.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self._client.__aexit__(exc_type, exc, tb)
