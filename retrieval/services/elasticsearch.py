"""Client of Elasticsearch and of OpenSearch: all queries in one `_msearch`.

POST /_msearch, a line of header and a line of body for each query
-> {"responses": [{"hits": {"hits": [{"_id", "_score", "_source": {...}}]}, "status": 200}, ...]}
"""

from __future__ import annotations

import json
import os
from typing import Any

from ...schemas.errors import ConfigError
from ...serving.bearer import check_one_proof
from ..passages import Hit
from .http_service import BadReplyError, HttpService
from .stored_records import hit_of_record

KEY_VARIABLE = "ROLLBOX_ELASTICSEARCH_KEY"
_FIELDS = ("title", "text", "contents")
# The engine's own limits: `index.max_result_window`, and 1,024 clauses, of which each word makes one per field.
_MAX_HITS = 10_000
_MAX_WORDS = 300
_SHOWN_CHARS = 300


class ElasticsearchRetriever(HttpService):
    """An index of documents with `contents`, or `title` and `text`, as a corpus for `rollbox retriever index` has them.

    An API key is read from the environment variable `ROLLBOX_ELASTICSEARCH_KEY`; a user and a password stand in the
    address, as in https://user:password@host:9200/wiki.

    Args:
        url: of the index: http://host:9200/wiki. max_connections, options: as for `HttpService`.

    Raises:
        ConfigError: the address names no index, or holds a password though there is a key.
    """

    def __init__(self, url: str, max_connections: int, **options: Any) -> None:
        server, _, self._index = url.rstrip("/").rpartition("/")
        if server.endswith(("/", ":")) or not self._index:
            raise ConfigError(f"elasticsearch: {url!r} names no index; write it as http://host:9200/INDEX")
        super().__init__(f"{server}/_msearch", max_connections, **options)
        key = os.environ.get(KEY_VARIABLE)
        self._headers = {"Content-Type": "application/x-ndjson"} | ({"Authorization": f"ApiKey {key}"} if key else {})
        check_one_proof(url, self._headers)

    async def search(self, queries: list[str], top_k: int, timeout_s: float) -> tuple[list[list[Hit]], int]:
        """Hits per query, the engine's BM25 as score; none for a blank query.

        Raises:
            OverloadedError, InfraError: as `retried`.
        """
        asked = [query for query in queries if query.split()]
        if not asked or top_k < 1:
            return [[] for _ in queries], 0
        body = "".join(map(self._lines, asked, [min(top_k, _MAX_HITS)] * len(asked))).encode()
        answers, retries = await self.retried(lambda: self._attempt(body, len(asked)), timeout_s)
        found = iter(answers)
        return [next(found) if query.split() else [] for query in queries], retries

    async def _attempt(self, body: bytes, queries: int) -> list[list[Hit]]:
        return _answers(await self.exchange("POST", data=body, headers=self._headers), queries)

    def _lines(self, query: str, top_k: int) -> str:
        words = " ".join(query.split()[:_MAX_WORDS])
        search = {
            "query": {"multi_match": {"query": words, "fields": list(_FIELDS)}},
            "size": top_k,
            "_source": ["id", *_FIELDS],
            "track_total_hits": False,
        }
        return f"{json.dumps({'index': self._index})}\n{json.dumps(search)}\n"


def _answers(answer: Any, queries: int) -> list[list[Hit]]:
    responses = answer.get("responses") if isinstance(answer, dict) else None
    if not isinstance(responses, list) or len(responses) != queries:
        raise BadReplyError(f"no list 'responses' with one for each of {queries} queries")
    return [_hits(response) for response in responses]


def _hits(response: Any) -> list[Hit]:
    """One query's. Each has a status of its own, while that of HTTP is 200.

    Raises:
        BadReplyError: the query failed, or a part of the index did not answer.
    """
    status = response.get("status", 200) if isinstance(response, dict) else None
    if status != 200:
        said = json.dumps(response.get("error"))[:_SHOWN_CHARS] if isinstance(response, dict) else "no object"
        again = isinstance(status, int) and (status == 429 or status >= 500)
        raise BadReplyError(f"status {status}: {said}", 0.0 if again else None, overloaded=status == 429)
    failed = (response.get("_shards") or {}).get("failed", 0)
    if failed or response.get("timed_out"):
        raise BadReplyError(f"an incomplete answer: {failed} shards failed, timed_out is {response.get('timed_out')}")
    found = (response.get("hits") or {}).get("hits")
    if not isinstance(found, list):
        raise BadReplyError("a response without hits")
    return [_hit(item) for item in found]


def _hit(item: Any) -> Hit:
    source = item.get("_source") if isinstance(item, dict) else None
    if not isinstance(source, dict):
        raise BadReplyError("a hit without _source", retry_after_s=None)
    return hit_of_record(item.get("_id"), source, item.get("_score"))
