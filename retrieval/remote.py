"""Client of a retrieval service that speaks Search-R1's `/retrieve`.

POST {"queries": [...], "topk": 3, "return_scores": true}
-> {"result": [[{"document": {"id", "contents"}, "score"}, ...], ...]}      one list per query
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import time
from typing import Any
from weakref import WeakKeyDictionary

import aiohttp

from ..schemas.errors import InfraError, OverloadedError
from .bm25 import Hit, split_contents

_MAX_ATTEMPTS = 4
_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 5.0
_RETRIED_BELOW_500 = frozenset({408, 425, 429})
_MAX_REPLY_BYTES = 16 * 2**20
_SHOWN_CHARS = 80


class _BadReplyError(Exception):
    """One attempt failed. `retry_after_s` is None where trying again is no use."""

    def __init__(self, message: str, retry_after_s: float | None = 0.0, overloaded: bool = False) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
        self.overloaded = overloaded


class RemoteRetriever:
    """One service, with one connection pool per event loop.

    Args:
        url: the whole address, path included.
        max_connections: requests in flight per event loop; more wait.
    """

    def __init__(self, url: str, max_connections: int) -> None:
        self._url = url
        self._max_connections = max_connections
        self._sessions: WeakKeyDictionary[asyncio.AbstractEventLoop, aiohttp.ClientSession] = WeakKeyDictionary()

    async def search(self, queries: list[str], top_k: int, timeout_s: float) -> tuple[list[list[Hit]], int]:
        """Hits per query, and how many retries it took.

        Server errors, full queues (429), broken connections and bodies that are no answer are tried again, at most
        three times and within `timeout_s` seconds altogether.

        Raises:
            OverloadedError: the service still says 429.
            InfraError: any other lasting failure.
        """
        deadline = time.monotonic() + timeout_s
        retries = 0
        while True:
            try:
                async with asyncio.timeout(deadline - time.monotonic()):
                    return await self._attempt(queries, top_k), retries
            except TimeoutError:
                raise InfraError(f"search unavailable: no answer within {timeout_s:.3g} s", retries) from None
            except _BadReplyError as error:
                pause_s = _pause_s(retries, error.retry_after_s)
                if retries + 1 >= _MAX_ATTEMPTS or time.monotonic() + pause_s >= deadline:
                    raise _as_infra_error(error, retries) from error
            await asyncio.sleep(pause_s)
            retries += 1

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        session = self._sessions.pop(asyncio.get_running_loop(), None)
        if session is not None:
            await session.close()

    def _session(self) -> aiohttp.ClientSession:
        loop = asyncio.get_running_loop()
        if loop not in self._sessions:
            connector = aiohttp.TCPConnector(limit=self._max_connections)
            # The deadline is kept outside, over all attempts; aiohttp's own five minutes must not cut in.
            self._sessions[loop] = aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None))
        return self._sessions[loop]

    async def _attempt(self, queries: list[str], top_k: int) -> list[list[Hit]]:
        wire = {"queries": queries, "topk": top_k, "return_scores": True}
        try:
            async with self._session().post(self._url, json=wire) as reply:
                if reply.status != 200:
                    raise _bad_status(reply)
                body = await _read_bounded(reply)
        except aiohttp.ClientError as error:
            raise _BadReplyError(f"{type(error).__name__}: {error}"[:_SHOWN_CHARS]) from error
        return _hits_of(body, len(queries))


def _pause_s(retries: int, retry_after_s: float | None) -> float:
    """Seconds before the next attempt; infinite where there should be none. Jitter keeps many callers apart."""
    if retry_after_s is None:
        return math.inf
    pause_s = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * float(2**retries)) * random.uniform(0.5, 1.0)
    return max(pause_s, retry_after_s)


def _as_infra_error(error: _BadReplyError, retries: int) -> InfraError:
    message = f"search unavailable: {error} (attempts: {retries + 1})"
    if error.overloaded:
        return OverloadedError(message, error.retry_after_s or 1.0, retries)
    return InfraError(message, retries)


def _bad_status(reply: aiohttp.ClientResponse) -> _BadReplyError:
    message = f"HTTP {reply.status} {reply.content_type}"
    if reply.status < 500 and reply.status not in _RETRIED_BELOW_500:
        return _BadReplyError(message, retry_after_s=None)
    try:
        retry_after_s = max(0.0, float(reply.headers.get("Retry-After", "0")))
    except ValueError:  # the header may also hold a date
        retry_after_s = 0.0
    return _BadReplyError(message, retry_after_s, overloaded=reply.status == 429)


async def _read_bounded(reply: aiohttp.ClientResponse) -> bytes:
    chunks = bytearray()
    async for chunk in reply.content.iter_chunked(2**16):
        chunks += chunk
        if len(chunks) > _MAX_REPLY_BYTES:
            raise _BadReplyError(f"answer of more than {_MAX_REPLY_BYTES} bytes", retry_after_s=None)
    return bytes(chunks)


def _hits_of(body: bytes, queries: int) -> list[list[Hit]]:
    if not body.strip():
        raise _BadReplyError("HTTP 200 with an empty body")
    try:
        answer = json.loads(body)
    except ValueError:
        raise _BadReplyError(f"not JSON: {body[:40]!r}") from None
    result = answer.get("result") if isinstance(answer, dict) else None
    if not isinstance(result, list) or len(result) != queries or not all(isinstance(hits, list) for hits in result):
        raise _BadReplyError(f"no list 'result' with one list for each of {queries} queries")
    return [[_hit_of(item) for item in hits] for hits in result]


def _hit_of(item: Any) -> Hit:
    """One hit; a bare document without score is taken too, as some services send it."""
    document = item.get("document", item) if isinstance(item, dict) else None
    if not isinstance(document, dict):
        raise _BadReplyError("a hit without document")
    contents, score = document.get("contents", document.get("text")), item.get("score", 0.0)
    if not isinstance(contents, str) or not contents.strip():
        raise _BadReplyError(f"document {document.get('id')!r} without contents"[:_SHOWN_CHARS])
    if isinstance(score, bool) or not isinstance(score, int | float):
        raise _BadReplyError(f"document {document.get('id')!r} with a score that is no number"[:_SHOWN_CHARS])
    title, text = split_contents(contents)
    return Hit(str(document.get("id", "")), str(document.get("title") or title), text, float(score))
