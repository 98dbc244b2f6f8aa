"""One HTTP service that is asked for JSON: connections per event loop, retries within a deadline, bounded answers."""

from __future__ import annotations

import asyncio
import json
import math
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import aiohttp

from ...schemas.errors import InfraError, OverloadedError
from ...schemas.surrogates import wire_json
from ...serving.bearer import check_one_proof

_MAX_ATTEMPTS = 4
_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 5.0
_RETRIED_BELOW_500 = frozenset({408, 425, 429})
_MAX_REPLY_BYTES = 16 * 2**20
_SHOWN_CHARS, _SAID_BYTES = 80, 300
T = TypeVar("T")


class BadReplyError(Exception):
    """One attempt failed. `retry_after_s` is None where trying again is no use; `status` where there was none."""

    def __init__(
        self, message: str, retry_after_s: float | None = 0.0, overloaded: bool = False, status: int | None = None
    ) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
        self.overloaded = overloaded
        self.status = status


class HttpService:
    """Asks one service; one connection pool per event loop.

    Args:
        url: the whole address, path included.
        max_connections: requests in flight per event loop; more wait.
        max_attempts: of each request; 1 leaves trying again to the caller, such as for another server.
        what: is unavailable where it fails. headers: of each request, such as the token.
    """

    def __init__(
        self,
        url: str,
        max_connections: int,
        *,
        max_attempts: int = _MAX_ATTEMPTS,
        what: str = "search",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._url = url
        self._max_connections = max_connections
        self._max_attempts = max_attempts
        self._what = what
        self._headers = headers
        check_one_proof(url, headers or {})
        self._sessions: WeakKeyDictionary[asyncio.AbstractEventLoop, aiohttp.ClientSession] = WeakKeyDictionary()

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        session = self._sessions.pop(asyncio.get_running_loop(), None)
        if session is not None:
            await session.close()

    async def retried(self, attempt: Callable[[], Awaitable[T]], timeout_s: float) -> tuple[T, int]:
        """What `attempt` returns, and how many retries it took.

        Server errors, full queues (429), broken connections and bodies that are no answer are tried again, by default
        three times at most, and within `timeout_s` seconds altogether.

        Raises:
            OverloadedError: the service still says 429.
            InfraError: any other lasting failure.
        """
        deadline = time.monotonic() + timeout_s
        retries = 0
        while True:
            try:
                async with asyncio.timeout(deadline - time.monotonic()):
                    return await attempt(), retries
            except TimeoutError:
                raise InfraError(f"{self._what} unavailable: no answer within {timeout_s:.3g} s", retries) from None
            except BadReplyError as error:
                pause_s = _pause_s(retries, error.retry_after_s)
                if retries + 1 >= self._max_attempts or time.monotonic() + pause_s >= deadline:
                    raise self._as_infra_error(error, retries) from error
            await asyncio.sleep(pause_s)
            retries += 1

    async def exchange(self, method: str, **options: Any) -> Any:
        """One request; the JSON that it answers. `options` are aiohttp's.

        Raises:
            BadReplyError: another status than 200, a broken connection, or no JSON.
        """
        try:
            async with self._session().request(method, self._url, **options) as reply:
                body = await _read_bounded(reply)
                if reply.status != 200:
                    raise _bad_status(reply, body)
        except aiohttp.ClientError as error:
            raise BadReplyError(f"{type(error).__name__}: {error}"[:_SHOWN_CHARS]) from error
        return _json_of(body)

    def _session(self) -> aiohttp.ClientSession:
        loop = asyncio.get_running_loop()
        if loop not in self._sessions:
            connector = aiohttp.TCPConnector(limit=self._max_connections)
            # The deadline is kept outside, over all attempts; aiohttp's own five minutes must not cut in.
            unlimited = aiohttp.ClientTimeout(total=None)
            self._sessions[loop] = aiohttp.ClientSession(
                connector=connector, timeout=unlimited, headers=self._headers, json_serialize=wire_json
            )
        return self._sessions[loop]

    def _as_infra_error(self, error: BadReplyError, retries: int) -> InfraError:
        message = f"{self._what} unavailable: {error} (attempts: {retries + 1})"
        if error.overloaded:
            return OverloadedError(message, error.retry_after_s or 1.0, retries)
        return InfraError(message, retries)


def _pause_s(retries: int, retry_after_s: float | None) -> float:
    """Seconds before the next attempt; infinite where there should be none. Jitter keeps many callers apart."""
    if retry_after_s is None:
        return math.inf
    pause_s = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * float(2**retries)) * random.uniform(0.5, 1.0)
    return max(pause_s, retry_after_s)


def _bad_status(reply: aiohttp.ClientResponse, body: bytes) -> BadReplyError:
    message = f"HTTP {reply.status} {reply.content_type}"
    if reply.status < 500 and reply.status not in _RETRIED_BELOW_500:
        # The service says what it dislikes: a missing index, a text that is too long.
        said = " ".join(body[:_SAID_BYTES].decode("utf-8", "replace").split())
        return BadReplyError(f"{message}: {said}" if said else message, retry_after_s=None, status=reply.status)
    try:
        retry_after_s = max(0.0, float(reply.headers.get("Retry-After", "0")))
    except ValueError:  # the header may also hold a date
        retry_after_s = 0.0
    return BadReplyError(message, retry_after_s, reply.status == 429, reply.status)


async def _read_bounded(reply: aiohttp.ClientResponse) -> bytes:
    chunks = bytearray()
    async for chunk in reply.content.iter_chunked(2**16):
        chunks += chunk
        if len(chunks) > _MAX_REPLY_BYTES:
            raise BadReplyError(f"answer of more than {_MAX_REPLY_BYTES} bytes", retry_after_s=None)
    return bytes(chunks)


def _json_of(body: bytes) -> Any:
    if not body.strip():
        raise BadReplyError("HTTP 200 with an empty body")
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise BadReplyError(f"not JSON: {body[:40]!r}") from None
