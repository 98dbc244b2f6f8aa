"""Clients of web search engines that answer with JSON: SearXNG's and Serper's shapes."""

from __future__ import annotations

import asyncio
from typing import Any

from ..passages import Hit
from .http_service import BadReplyError, HttpService


class _WebRetriever(HttpService):
    """One request for each query, all at a time."""

    async def search(self, queries: list[str], top_k: int, timeout_s: float) -> tuple[list[list[Hit]], int]:
        """Hits per query, and how many retries they took together.

        Raises:
            OverloadedError, InfraError: as `retried`; of the first query that fails for good.
        """
        found = await asyncio.gather(
            *(self.retried(lambda query=query: self._attempt(query, top_k), timeout_s) for query in queries)  # type: ignore[misc]
        )
        return [hits for hits, _ in found], sum(retries for _, retries in found)

    async def _attempt(self, query: str, top_k: int) -> list[Hit]:
        raise NotImplementedError


class SearxngRetriever(_WebRetriever):
    """`GET url?q=...&format=json` -> `{"results": [{"url", "title", "content"}], "answers": [...]}`.

    The engine must allow the format: `search.formats` in its settings.
    """

    async def _attempt(self, query: str, top_k: int) -> list[Hit]:
        answer = await self.exchange("GET", params={"q": query, "format": "json"})
        return web_hits(answer, "results", ("url", "title", "content"), top_k)


class SerperRetriever(_WebRetriever):
    """`POST url {"q", "num"}` with `X-API-KEY` -> `{"organic": [{"link", "title", "snippet"}], "answerBox"?}`."""

    def __init__(self, url: str, max_connections: int, api_key: str) -> None:
        super().__init__(url, max_connections, headers={"X-API-KEY": api_key})

    async def _attempt(self, query: str, top_k: int) -> list[Hit]:
        answer = await self.exchange("POST", json={"q": query, "num": top_k})
        hits = web_hits(answer, "organic", ("link", "title", "snippet"), top_k)
        box = answer.get("answerBox")
        text = (box.get("answer") or box.get("snippet")) if isinstance(box, dict) else None
        if isinstance(text, str) and text.strip():
            # The engine's own answer comes first, and counts as a hit.
            box_title = box.get("title")
            title = box_title if isinstance(box_title, str) else ""
            hits = [Hit(str(box.get("link", "")), title, text.strip(), float(top_k)), *hits][:top_k]
        return hits


def web_hits(answer: Any, key: str, names: tuple[str, str, str], top_k: int) -> list[Hit]:
    """The hits of one answer; those without text are left out. Engines give no scores: the score falls with the rank.

    Args:
        names: of a hit's address, title and text.

    Raises:
        BadReplyError: it is no such answer.
    """
    results = answer.get(key, []) if isinstance(answer, dict) else None
    if not isinstance(results, list):
        raise BadReplyError(f"no list {key!r}")
    hits: list[Hit] = []
    for result in results:
        if not isinstance(result, dict):
            raise BadReplyError(f"a result in {key!r} that is no object")
        url, title, text = (_text(result.get(name)) for name in names)
        if text or title:
            hits.append(Hit(url, title, text or title, float(top_k - len(hits))))
        if len(hits) == top_k:
            break
    return hits


def _text(value: Any) -> str:
    return " ".join(value.split()) if isinstance(value, str) else ""
