"""Client of a retrieval service that speaks Search-R1's `/retrieve`.

POST {"queries": [...], "topk": 3, "return_scores": true}
-> {"result": [[{"document": {"id", "contents"}, "score"}, ...], ...]}      one list per query
"""

from __future__ import annotations

from typing import Any

from ..passages import Hit, Passage, is_score
from .http_service import BadReplyError, HttpService

_SHOWN_CHARS = 80


class RemoteRetriever(HttpService):
    """A service that speaks Search-R1's `/retrieve`: one request for all queries."""

    async def search(self, queries: list[str], top_k: int, timeout_s: float) -> tuple[list[list[Hit]], int]:
        """Hits per query, and how many retries it took.

        Raises:
            OverloadedError, InfraError: as `retried`.
        """
        return await self.retried(lambda: self._attempt(queries, top_k), timeout_s)

    async def _attempt(self, queries: list[str], top_k: int) -> list[list[Hit]]:
        wire = {"queries": queries, "topk": top_k, "return_scores": True}
        return _hits_of(await self.exchange("POST", json=wire), len(queries), top_k)


def _hits_of(answer: Any, queries: int, top_k: int) -> list[list[Hit]]:
    result = answer.get("result") if isinstance(answer, dict) else None
    if not isinstance(result, list) or len(result) != queries or not all(isinstance(hits, list) for hits in result):
        raise BadReplyError(f"no list 'result' with one list for each of {queries} queries")
    return [[_hit_of(item) for item in hits[:top_k]] for hits in result]


def _hit_of(item: Any) -> Hit:
    """One hit; a bare document without score is taken too, as some services send it."""
    document = item.get("document", item) if isinstance(item, dict) else None
    if not isinstance(document, dict):
        raise BadReplyError("a hit without document")
    contents, score = document.get("contents", document.get("text")), item.get("score", 0.0)
    if not isinstance(contents, str) or not contents.strip():
        raise BadReplyError(f"document {document.get('id')!r} without contents"[:_SHOWN_CHARS])
    if not is_score(score):
        raise BadReplyError(f"document {document.get('id')!r} with a score that is no finite number"[:_SHOWN_CHARS])
    name = document.get("id")
    passage = Passage.of_contents("" if name is None else str(name), contents)
    title = str(document.get("title") or passage.title)
    return Hit(passage.id, title, passage.text, float(score), passage.raw)
