"""Client of an embedding server that speaks OpenAI's `/v1/embeddings`, as vLLM, TEI, Infinity and llama.cpp do.

POST {"model": "...", "input": ["...", ...], "encoding_format": "float"}
-> {"data": [{"index": 0, "embedding": [0.1, ...]}, ...]}
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...schemas.errors import InfraError
from ...schemas.redacted import redacted
from ...serving.bearer import authorization, check_one_proof
from ..services.http_service import BadReplyError, HttpService
from .embedder import NoAccessError, Vectors, known_prefixes, unit_rows

KEY_VARIABLE = "ROLLBOX_EMBEDDING_KEY"
_MAX_CONNECTIONS = 8


class EmbeddingServer(HttpService):
    """Sends texts in batches, eight at a time; each batch is tried again by itself.

    A bearer token is read from the environment variable `ROLLBOX_EMBEDDING_KEY`.

    Args:
        url: the whole address. model: the name that the server knows.
    """

    def __init__(self, url: str, model: str, batch_size: int = 32) -> None:
        super().__init__(url, _MAX_CONNECTIONS, what=f"embedding server {redacted(url)}")
        self.prefixes = known_prefixes(model)
        self._model = model
        self._batch_size = batch_size
        key = os.environ.get(KEY_VARIABLE)
        self._headers = authorization(key or None)
        check_one_proof(url, self._headers)

    async def embed(self, texts: Sequence[str], timeout_s: float) -> tuple[Vectors, int]:
        """
        Raises:
            OverloadedError, InfraError: as `retried`, of the first batch that fails for good; or the batches' vectors
                have different lengths. NoAccessError: it takes no texts from us.
        """
        if not texts:
            raise ValueError("no texts")
        deadline = time.monotonic() + timeout_s
        room = asyncio.Semaphore(_MAX_CONNECTIONS)

        async def batch(start: int) -> tuple[Vectors, int]:
            async with room:
                wanted = list(texts[start : start + self._batch_size])
                return await self.retried(lambda: self._attempt(wanted), deadline - time.monotonic())

        starts = range(0, len(texts), self._batch_size)
        tasks = [asyncio.create_task(batch(start)) for start in starts]
        try:
            found = await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
        lengths = {vectors.shape[1] for vectors, _ in found}
        if len(lengths) > 1:
            raise InfraError(f"{self._what}: vectors of different lengths: {sorted(lengths)}")
        return np.concatenate([vectors for vectors, _ in found]), sum(retries for _, retries in found)

    def _as_infra_error(self, error: BadReplyError, retries: int) -> InfraError:
        if error.status not in (401, 403):
            return super()._as_infra_error(error, retries)
        return NoAccessError(
            f"{self._what} takes nothing from us: {error}; an index keeps no passwords and keys, so give the address "
            "with them by --embedding-url (`embedding_url` of a search tool, --dense-url where the index is built), or "
            f"a bearer token in {KEY_VARIABLE}"
        )

    async def _attempt(self, texts: list[str]) -> Vectors:
        wire = {"model": self._model, "input": texts, "encoding_format": "float"}
        return _vectors_of(await self.exchange("POST", json=wire, headers=self._headers), len(texts))


def _vectors_of(answer: Any, texts: int) -> Vectors:
    data = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(data, list) or len(data) != texts or not all(isinstance(item, dict) for item in data):
        raise BadReplyError(f"no list 'data' with one vector for each of {texts} texts")
    # The order of the list is not promised; the index is.
    by_index = {item.get("index", position): item.get("embedding") for position, item in enumerate(data)}
    if by_index.keys() != set(range(texts)):
        raise BadReplyError("vectors whose indexes do not count the texts")
    try:
        return unit_rows([by_index[position] for position in range(texts)])
    except (ValueError, TypeError) as error:
        raise BadReplyError(f"no vectors: {error}"[:200]) from None
