"""Ask a scoring server: retries, a bound on requests in flight, a circuit breaker. What fails is an `InfraError`."""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
from types import TracebackType
from typing import Any, Self

import aiohttp

from ..schemas.errors import ConfigError, InfraError, OverloadedError
from ..schemas.reward_config import Service
from ..schemas.surrogates import wire_json
from ..serving.bearer import authorization, check_one_proof

_BACKOFF_S, _BACKOFF_MAX_S = 0.2, 10.0
_SHOWN_CHARS = 200
_MAX_ANSWER_BYTES = 64 << 20
_TRY_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})


class ScoringService:
    """A client of one server. An async context manager that many tasks may use at once.

    Raises:
        ConfigError: the variable that should hold the token is not set, or holds what is no token.
    """

    def __init__(self, settings: Service) -> None:
        self.settings = settings
        self._headers: dict[str, str] = {}
        if settings.token_variable is not None:
            token = os.environ.get(settings.token_variable, "").strip()
            if not token:
                raise ConfigError(f"service.token_variable: {settings.token_variable} is not set")
            if not token.isprintable():
                raise ConfigError(f"service.token_variable: {settings.token_variable} holds more than one line")
            self._headers = authorization(token)
            check_one_proof(settings.url, self._headers)
        self._session: aiohttp.ClientSession | None = None
        self._free = asyncio.Semaphore(settings.concurrency)
        self._failures_in_row = 0
        self._shut_until = 0.0

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            headers=self._headers, connector=aiohttp.TCPConnector(limit=0), json_serialize=wire_json
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def post(self, path: str, body: Any) -> Any:
        """Send JSON, return JSON. Refusals for load and faults of the server are tried again.

        Args:
            path: added to the server's address.

        Raises:
            ConfigError: it refuses what it is asked (401, 403, 404, 422, …): asking again would not help.
            InfraError: it failed beyond `retries`, or so often lately that it is left alone for a while.
        """
        async with self._free:
            self._check_breaker()
            try:
                found = await self._retried(path, body)
            except InfraError:
                self._failures_in_row += 1
                if self._failures_in_row >= self.settings.breaker_failures:
                    self._shut_until = time.monotonic() + self.settings.breaker_pause_s
                raise
            self._failures_in_row = 0
            return found

    def _check_breaker(self) -> None:
        left_s = self._shut_until - time.monotonic()
        if left_s > 0:
            raise InfraError(
                f"{self.settings.url} failed {self._failures_in_row} times in a row; left alone for {left_s:.0f} s more"
            )

    async def _retried(self, path: str, body: Any) -> Any:
        attempt = 0
        while True:
            try:
                return await self._attempt(self.settings.url.rstrip("/") + path, body)
            except InfraError as error:
                error.retries = attempt
                if attempt >= self.settings.retries:
                    raise
                pause_s = min(_BACKOFF_S * 2**attempt, _BACKOFF_MAX_S)
                if isinstance(error, OverloadedError):
                    pause_s = max(pause_s, min(error.retry_after_s, _BACKOFF_MAX_S))
            await asyncio.sleep(random.uniform(0.1 * pause_s, pause_s))
            attempt += 1

    async def _attempt(self, url: str, body: Any) -> Any:
        if self._session is None:
            raise ConfigError("rewards: not open; score inside `async with` of the rewards")
        timeout = aiohttp.ClientTimeout(total=self.settings.timeout_s)
        try:
            async with self._session.post(url, json=body, timeout=timeout) as response:
                answer = await _read_bounded(response, url)
                status, retry_after = response.status, response.headers.get("Retry-After", "")
        except TimeoutError:
            raise InfraError(f"no answer from {url} within {self.settings.timeout_s} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise InfraError(f"{url} cannot be reached: {str(error) or type(error).__name__}") from None
        if status == 200:
            return _json(answer, url)
        said = f"{url} answered {status}: {_shown(answer)}"
        if status == 429:
            raise OverloadedError(said, float(retry_after) if retry_after.isdecimal() else 1.0)
        raise InfraError(said) if status in _TRY_AGAIN else ConfigError(said)


async def _read_bounded(response: aiohttp.ClientResponse, url: str) -> bytes:
    found = bytearray()
    async for chunk in response.content.iter_any():
        found += chunk
        if len(found) > _MAX_ANSWER_BYTES:
            raise InfraError(f"{url} answered with more than {_MAX_ANSWER_BYTES >> 20} MiB")
    return bytes(found)


def _json(answer: bytes, url: str) -> Any:
    try:
        return json.loads(answer)
    except (ValueError, RecursionError):
        raise InfraError(f"{url} answered with something else than JSON: {_shown(answer)}") from None


def _shown(answer: bytes) -> str:
    line = " ".join(answer.decode(errors="replace").split())
    return line if len(line) <= _SHOWN_CHARS else line[:_SHOWN_CHARS] + "…"
