"""LocalRetriever: a BM25 index of this process, searched in threads."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from ..schemas.errors import InfraError
from .bm25 import Bm25Index
from .passages import Hit


class LocalRetriever:
    """tantivy releases the interpreter lock, so `threads` calls run side by side; the queries of one, in turn."""

    def __init__(self, index: Bm25Index, threads: int) -> None:
        self._index = index
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="bm25")

    async def search(self, queries: list[str], top_k: int, timeout_s: float) -> tuple[list[list[Hit]], int]:
        """
        Raises:
            InfraError: the index is damaged, or there was no answer within `timeout_s`.
        """
        try:
            async with asyncio.timeout(timeout_s):
                found = asyncio.get_running_loop().run_in_executor(self._threads, self._search_all, queries, top_k)
                return await found, 0
        except TimeoutError:
            raise InfraError(f"search unavailable: no answer within {timeout_s:.3g} s") from None

    async def aclose(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _search_all(self, queries: list[str], top_k: int) -> list[list[Hit]]:
        return [self._index.search(query, top_k) for query in queries]
