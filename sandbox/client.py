"""Sandbox: the client of a sandbox server. The only way in which the rest of Rollbox reaches one."""

from __future__ import annotations

import asyncio
import io
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from types import TracebackType
from typing import Any, NoReturn, Self, TypeVar
from urllib.parse import urlsplit
from uuid import uuid4

import aiohttp
from pydantic import BaseModel, ValidationError

from ..schemas.errors import (
    ConfigError,
    ErrorKind,
    InfraError,
    OverloadedError,
    SandboxError,
    SessionLostError,
    ToolError,
)
from ..schemas.judge import JudgeLine, JudgeRequest, JudgeResult
from ..schemas.run import RunRequest, RunResult
from ..schemas.session import SessionRequest
from ..serving.bearer import TOKEN_VARIABLE, authorization, check_one_proof, check_token, environment_token
from . import backoff, judge_client
from .container import ContainerServer
from .embedded import EmbeddedServer, require_server
from .session_client import SandboxSession, opened
from .shared_server import SharedServer

T = TypeVar("T")
_QUEUE_ALLOWANCE_S = 300.0
_SHOWN_CHARS = 200
_LARGE_CHARS = 262_144


class Sandbox:
    """A sandbox server, as an async context manager that many tasks may use at once.

    Build one with `connect`, `embedded` or `container`.
    """

    def __init__(
        self,
        url: str | None,
        server: EmbeddedServer | SharedServer | ContainerServer | None,
        max_retries: int,
        token: str | None = None,
    ) -> None:
        self._url = url
        self._server = server
        self.max_retries = max_retries
        self.waits_when_full = True
        self._token = environment_token() if token is None else check_token(token, "token")
        self._session: aiohttp.ClientSession | None = None

    @classmethod
    def connect(cls, url: str, *, max_retries: int = 5, token: str | None = None, waits_when_full: bool = True) -> Self:
        """A server that runs already.

        Args:
            url: such as `http://127.0.0.1:8080`.
            max_retries: attempts after the first when the server fails or cannot be reached. A full queue is retried
                until the deadline.
            token: what the server asks for; None takes it from the variable ROLLBOX_SANDBOX_TOKEN, where that is set.
            waits_when_full: otherwise a full queue is told at once, for a caller that has other servers.

        Raises:
            ConfigError: `url` is not an HTTP address, or the token cannot be sent, or not beside a password in `url`.
        """
        made = cls(check_url(url), None, max_retries, token)
        check_one_proof(url, authorization(made._token))
        made.waits_when_full = waits_when_full
        return made

    @classmethod
    def embedded(cls, *, max_retries: int = 5, shared: bool = True, **settings: Any) -> Self:
        """A server of this machine, started on entering the context if there is none yet.

        Args:
            shared: processes of one user that ask for the same settings share one server, which ends with the last of
                them. Otherwise a server of one's own, which ends with the context, or with this process.
            settings: of `SandboxSettings`, such as `slots` and `queue`.

        Raises:
            ConfigError: what a server is made of is not installed.
        """
        require_server()
        return cls(None, SharedServer(settings) if shared else EmbeddedServer(settings), max_retries)

    @classmethod
    def container(cls, *, image: str | None = None, max_retries: int = 5, **settings: Any) -> Self:
        """A server in a Docker container of one's own, which is removed with the context, or with this process.

        Args:
            image: None is the one that `docker compose build sandbox` makes.
            settings: of `SandboxSettings`, such as `slots` and `queue`.

        Raises:
            ConfigError: the package `docker` is not installed.
        """
        server = ContainerServer(image, settings)
        return cls(None, server, max_retries, server.token)

    @property
    def url(self) -> str:
        """The server's address.

        Raises:
            SandboxError: an embedded server that has not been started.
        """
        if self._url is None:
            raise SandboxError("the embedded sandbox server is not running: use `async with`")
        return self._url

    @property
    def server_pid(self) -> int | None:
        """The process id of an embedded server, or of one in a container."""
        return None if self._server is None else self._server.pid

    async def __aenter__(self) -> Self:
        """
        Raises:
            ConfigError: there is no Docker engine, or no such image.
            SandboxError: the embedded server did not start.
        """
        if self._server is not None:
            self._url = await self._server.start()
        # No limit of our own: the server's queue is the one place where requests wait.
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0), headers=authorization(self._token)
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None
        if self._server is not None:
            await self._server.stop()
            self._url = None

    async def run(self, request: RunRequest, *, deadline_s: float | None = None) -> RunResult:
        """Run a program. Failures of ours are retried until `deadline_s` seconds from now have passed.

        Args:
            deadline_s: None allows the run's own wall limits and five minutes of queue.

        Raises:
            ToolError: (kind `arguments`) the server refuses the request; the text names the field.
            ConfigError: the server asks for another token.
            OverloadedError: the queue stayed full. `retries` says how often it was tried again.
            SandboxError: the server could not be reached or could not run the code. `retries` as above.
        """
        result, _ = await self.run_counted(request, deadline_s=deadline_s)
        return result

    async def run_counted(self, request: RunRequest, *, deadline_s: float | None = None) -> tuple[RunResult, int]:
        """Like `run`; also returns the number of retries that it took."""
        if request.idempotency_key is None:
            # A try that was lost on the way may have been run: with a key the next one gets its result.
            request = request.model_copy(update={"idempotency_key": uuid4().hex})
        # Encoding the largest requests takes tenths of a second, which the event loop must not.
        small = len(request.code) + len(request.stdin or "") + sum(map(len, request.files.values())) < _LARGE_CHARS
        body = _encoded(request) if small else await asyncio.to_thread(_encoded, request)
        deadline = time.monotonic() + (allowed_s(request) if deadline_s is None else deadline_s)
        return await self._retried(lambda timeout_s: self._run_attempt(body, timeout_s), deadline)

    async def judge(self, request: JudgeRequest, *, deadline_s: float | None = None) -> JudgeResult:
        """Judge a program by many tests. Failures of ours are retried as in `run`.

        Args:
            deadline_s: None allows all time limits of the request together, and five minutes of queue.

        Raises:
            ToolError: (kind `arguments`) the server refuses the request; the text names the field.
            OverloadedError: the queue stayed full.
            SandboxError: the server could not be reached, or tests failed through us; no verdict is made of those.
        """
        request, body, deadline = await self._judge_body(request, deadline_s)

        async def attempt(timeout_s: float) -> JudgeResult:
            async with aclosing(self._judge_attempt(body, timeout_s)) as lines:
                return await judge_client.collected(lines)

        result, _ = await self._retried(attempt, deadline)
        return result

    async def judge_lines(
        self, request: JudgeRequest, *, deadline_s: float | None = None
    ) -> AsyncGenerator[JudgeLine, None]:
        """The lines of a judging as they come. Closing the iterator ends the judging. Nothing is retried.

        Raises: as `judge`; but tests that failed through us are lines with verdict `infra`.
        """
        request, body, deadline = await self._judge_body(request, deadline_s)
        async with aclosing(self._judge_attempt(body, deadline - time.monotonic())) as lines:
            async for line in lines:
                yield line

    async def _judge_body(self, request: JudgeRequest, deadline_s: float | None) -> tuple[JudgeRequest, bytes, float]:
        if request.idempotency_key is None:
            request = request.model_copy(update={"idempotency_key": uuid4().hex})
        allowed_s = judge_client.longest_s(request) + _QUEUE_ALLOWANCE_S if deadline_s is None else deadline_s
        return request, await asyncio.to_thread(_encoded, request), time.monotonic() + allowed_s

    async def _judge_attempt(self, body: bytes, timeout_s: float) -> AsyncGenerator[JudgeLine, None]:
        async with self._response("POST", "/v1/judge", timeout_s, body) as response:
            if response.status != 200:
                _raise_for(response.status, dict(response.headers), await response.text(errors="replace"), self.url)
            async with aclosing(judge_client.parsed(response.content.iter_any(), self.url)) as lines:
                async for line in lines:
                    yield line

    async def _retried(self, attempt: Callable[[float], Awaitable[T]], deadline: float) -> tuple[T, int]:
        """What `attempt` returns, which is given the seconds that are left; and the number of retries."""
        infra_failures = retries = 0
        while True:
            try:
                return await attempt(deadline - time.monotonic()), retries
            except InfraError as error:
                full = isinstance(error, OverloadedError)
                infra_failures += not full
                pause_s = backoff.pause_s(error, retries)
                over = infra_failures > self.max_retries or (full and not self.waits_when_full)
                if over or time.monotonic() + pause_s >= deadline:
                    error.retries = retries
                    raise
            await asyncio.sleep(pause_s)
            retries += 1

    async def _run_attempt(self, body: bytes, timeout_s: float) -> RunResult:
        text = await self.exchange("POST", "/v1/run", timeout_s, body)
        try:
            return RunResult.model_validate_json(text)
        except ValidationError:
            raise SandboxError(f"{self.url} answered with something else than a run result: {_shown(text)}") from None

    async def create_session(
        self, request: SessionRequest | None = None, *, deadline_s: float = _QUEUE_ALLOWANCE_S
    ) -> SandboxSession:
        """Open a stateful session; close it by leaving its context. See docs/sessions.md.

        Raises:
            ToolError: (kind `arguments`) the server refuses the request; the text names the field.
            OverloadedError: there are as many sessions as the server, or `client`, may have.
            SandboxError: the server could not be reached or could not open it.
        """
        return await opened(self, request or SessionRequest(), deadline_s)

    async def info(self) -> dict[str, Any]:
        """The server's version, verified isolation layers, limits and load.

        Raises:
            SandboxError: it cannot be reached, or is not a sandbox server.
        """
        text = await self.exchange("GET", "/v1/info", timeout_s=10.0)
        data = _object(text)
        if data is None:
            raise SandboxError(f"{self.url} is not a sandbox server: {_shown(text)}")
        return data

    async def exchange(self, method: str, path: str, timeout_s: float, body: bytes | None = None) -> str:
        """One request, and the text of an answer that says 200.

        Raises:
            ToolError, SessionLostError, OverloadedError, SandboxError: it says something else, or none came.
        """
        status, headers, text = await self._request(method, path, timeout_s, body)
        if status != 200:
            _raise_for(status, headers, text, self.url)
        return text

    async def _request(
        self, method: str, path: str, timeout_s: float, body: bytes | None = None
    ) -> tuple[int, dict[str, str], str]:
        async with self._response(method, path, timeout_s, body) as response:
            return response.status, dict(response.headers), await response.text(errors="replace")

    @asynccontextmanager
    async def _response(
        self, method: str, path: str, timeout_s: float, body: bytes | None = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """
        Raises:
            SandboxError: the server cannot be reached, or is lost while its answer is read.
        """
        if self._session is None:
            raise SandboxError("the sandbox client is not open: use `async with`")
        timeout = aiohttp.ClientTimeout(total=max(timeout_s, 0.001))
        headers = {"Content-Type": "application/json"}
        data = None if body is None else io.BytesIO(body)
        try:
            async with self._session.request(
                method, self.url + path, data=data, headers=headers, timeout=timeout
            ) as response:
                yield response
        except TimeoutError:
            raise SandboxError(f"no answer from {self.url} within {timeout_s:.1f} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise SandboxError(f"{self.url} cannot be reached: {_shown(str(error) or type(error).__name__)}") from None


def allowed_s(request: RunRequest) -> float:
    """Seconds given to a run whose caller names none: its own limits, and five minutes of queue."""
    return request.limits.wall_s + request.limits.compile_wall_s + _QUEUE_ALLOWANCE_S


def check_url(url: str) -> str:
    """`url` without its trailing slash.

    Raises:
        ConfigError: it is not an HTTP address, such as a placeholder that was never filled in.
    """
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid:
        raise ConfigError(
            f"sandbox url: {url!r} is not an address; it looks like http://127.0.0.1:8080 "
            "(try it with: curl http://127.0.0.1:8080/v1/ping)"
        )
    return url.rstrip("/")


def _encoded(request: BaseModel) -> bytes:
    try:
        return request.model_dump_json().encode()
    except ValueError as error:  # pydantic cannot serialise lone surrogates
        raise ToolError(f"code: not valid Unicode text ({error})", ErrorKind.ARGUMENTS) from None


def _raise_for(status: int, headers: dict[str, str], text: str, url: str) -> NoReturn:
    said = _object(text) or {}
    detail = str(said.get("detail", "")) or _shown(text)
    if status == 401:
        raise ConfigError(
            f"{url} asks for a token{detail and f': {detail}'}; pass `token` (`sandbox_token` of a tool), or set "
            f"the variable {TOKEN_VARIABLE}"
        )
    if status in (413, 422):
        raise ToolError(detail, ErrorKind.ARGUMENTS)
    if status == 429:
        raise OverloadedError(f"{url} is overloaded: {detail}", _seconds(headers.get("Retry-After")))
    if status in (404, 410) and said.get("kind") == ErrorKind.INFRA:
        raise SessionLostError(detail)
    if status in (409, 410):
        raise ToolError(detail, ErrorKind.ARGUMENTS if said.get("kind") == ErrorKind.ARGUMENTS else ErrorKind.USER_CODE)
    raise SandboxError(f"{url} answered {status}: {detail}")


def _object(text: str) -> dict[str, Any] | None:
    try:
        data = json.loads(text)
    except ValueError:
        return None
    return data if isinstance(data, dict) else None


def _seconds(value: str | None) -> float:
    try:
        return max(0.0, float(value or ""))
    except ValueError:  # the header may also hold a date
        return 1.0


def _shown(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN_CHARS else line[:_SHOWN_CHARS] + "…"
