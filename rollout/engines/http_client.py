"""JSON over HTTP to the servers of one model, tried again where that can help."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self

import aiohttp

from ...schemas.errors import ConfigError, EngineError
from ...schemas.surrogates import wire_json
from ...serving.bearer import authorization, check_one_proof
from .replicas import Replica, Replicas
from .watch import watched

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 5.0
_CONNECT_S = 10.0
_OVERLOADED = frozenset({429, 503})
_SHOWN_CHARS = 300


class _AttemptError(Exception):
    """One attempt failed in a way that another may not. `retry_after_s`: the server's advice.

    `sick`: the server itself failed, rather than being full.
    """

    def __init__(self, message: str, *, sick: bool = True, retry_after_s: float = 0.0) -> None:
        super().__init__(message)
        self.sick = sick
        self.retry_after_s = retry_after_s


class EngineClient:
    """An async context manager that many tasks may use at once. Cancelling a request closes its connection.

    Args:
        urls: one base address, several of equal servers (a sequence, or separated by commas).
        api_key: sent as a bearer token.
        timeout_s: seconds for one generation, all attempts together.
        retry_s: seconds for which failing servers are tried again; a full one (429, 503) until `timeout_s`.

    Raises:
        ConfigError: something in `urls` is no address, or holds a password though there is a key.
    """

    def __init__(
        self,
        urls: str | Sequence[str],
        *,
        api_key: str | None = None,
        timeout_s: float = 600.0,
        retry_s: float = 30.0,
    ) -> None:
        given = urls.split(",") if isinstance(urls, str) else urls
        self.replicas = Replicas([url.strip() for url in given])
        self._headers = authorization(api_key or None)
        for replica in self.replicas.all:
            check_one_proof(replica.url, self._headers)
        self._timeout_s = timeout_s
        self._retry_s = retry_s
        self._session: aiohttp.ClientSession | None = None
        self._open = AsyncExitStack()

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(limit=0)  # the rollout's own concurrency is the limit
        # The deadline is kept outside, over all attempts.
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S)
        session = aiohttp.ClientSession(
            headers=self._headers, connector=connector, timeout=timeout, json_serialize=wire_json
        )
        async with AsyncExitStack() as stack:
            self._session = await stack.enter_async_context(session)
            await stack.enter_async_context(watched(self.replicas, session))
            self._open = stack.pop_all()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._session = None
        await self._open.aclose()

    async def get_from_all(self, path: str) -> list[Any]:
        """The answer of every server, asked once.

        Raises:
            ConfigError: one of them does not answer, or not with JSON.
        """
        return [await self._get(replica.url + path) for replica in self.replicas.all]

    async def post(self, path: str, body: dict[str, Any], key: str) -> Any:
        """Ask the server that has the trajectory `key`, or another one when that is sick.

        Raises:
            EngineError: no usable answer in time, or one that says that the request is at fault.
        """
        failures: list[_AttemptError] = []
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._post_until_answered(path, body, key, failures)
        except TimeoutError:
            last = f"; last failure: {failures[-1]}" if failures else ""
            raise EngineError(f"no answer to {path} within {self._timeout_s:g} s{last}", len(failures)) from None

    async def _post_until_answered(
        self, path: str, body: dict[str, Any], key: str, failures: list[_AttemptError]
    ) -> Any:
        give_up_at = math.inf
        while True:
            with self.replicas.lease(key) as replica:
                try:
                    answer = await self._attempt_at(replica, path, body)
                    replica.succeeded()
                    return answer
                except _AttemptError as error:
                    if error.sick:
                        replica.failed()
                        give_up_at = min(give_up_at, time.monotonic() + self._retry_s)
                    else:
                        replica.heard()
                    failures.append(error)
            failure, retries = failures[-1], len(failures) - 1
            pause_s = 0.0 if failure.sick and self.replicas.any_well() else _pause_s(retries, failure.retry_after_s)
            if time.monotonic() + pause_s >= give_up_at:
                raise EngineError(f"{failure} (attempts: {retries + 1})", retries) from failure
            await asyncio.sleep(pause_s)

    async def _attempt_at(self, replica: Replica, path: str, body: dict[str, Any]) -> Any:
        try:
            async with replica.request():
                return await self._attempt("POST", replica.url + path, body)
        except EngineError:
            replica.heard()
            raise
        except TimeoutError:
            raise _AttemptError(f"{replica.url} hangs: it does not even answer /v1/models") from None

    async def _get(self, where: str) -> Any:
        try:
            async with asyncio.timeout(min(self._timeout_s, _CONNECT_S)):
                return await self._attempt("GET", where, None)
        except TimeoutError:
            raise ConfigError(f"model: no usable answer from {where}: nothing within {_CONNECT_S:g} s") from None
        except (_AttemptError, EngineError) as error:
            raise ConfigError(f"model: no usable answer from {where}: {error}") from error

    async def _attempt(self, method: str, where: str, body: dict[str, Any] | None) -> Any:
        if self._session is None:
            raise EngineError("the engine is not running: use it inside 'async with'")
        try:
            async with self._session.request(method, where, json=body) as answer:
                if answer.status != 200:
                    raise _bad_status(where, answer, await answer.text(errors="replace"))
                return await answer.json(content_type=None)
        except (aiohttp.ClientError, OSError) as error:
            raise _AttemptError(f"{where}: {type(error).__name__}: {error}") from error
        except (ValueError, RecursionError) as error:
            raise EngineError(f"{where}: {type(error).__name__}: {error}") from error


def _bad_status(where: str, answer: aiohttp.ClientResponse, text: str) -> _AttemptError | EngineError:
    message = f"{where} answered {answer.status}: {text[:_SHOWN_CHARS]}"
    if answer.status in _OVERLOADED:
        return _AttemptError(message, sick=False, retry_after_s=_seconds(answer.headers.get("Retry-After")))
    if answer.status >= 500 or answer.status == 408:
        return _AttemptError(message)
    return EngineError(message)


def _seconds(value: str | None) -> float:
    try:
        return max(0.0, float(value or ""))
    except ValueError:  # the header may also hold a date
        return 0.0


def _pause_s(retries: int, retry_after_s: float) -> float:
    """Exponential with jitter, so that requests refused together do not come back together."""
    ceiling_s: float = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0 ** min(retries, 16))
    return max(random.uniform(0.1 * ceiling_s, ceiling_s), min(retry_after_s, _LONGEST_PAUSE_S))
