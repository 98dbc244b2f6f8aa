"""Siblings: the workers of one server, as one of them sees them. What belongs to another is passed on to it.

A run with an idempotency key belongs to the worker that the key's hash names, and a session to the one that its id
names: so a retry finds the first run on whichever connection it comes, and a session is found from everywhere. Workers
reach each other by local sockets in a folder that is closed to other users, with the same HTTP as clients.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from http import HTTPStatus
from types import TracebackType
from typing import Any, Self

import aiohttp
from fastapi import Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel
from starlette.types import ASGIApp, Receive, Scope, Send

from ..schemas.errors import ErrorKind, OverloadedError, SandboxError, ToolError
from ..schemas.run import RunRequest, RunResult
from ..serving.bearer import authorization
from ..serving.disconnect import ClientGoneError, while_connected
from .job import is_large

ASKED_BY_SIBLING = "x-rollbox-sibling"
"""A header: the answer is about this worker alone."""
_ANSWER_S = 5.0
_OF_SESSION = re.compile(r"/v1/sessions/s(\d{1,9})-")
_PASSED_ON = ("content-type", "authorization", "accept", ASKED_BY_SIBLING)
_PASSED_BACK = ("content-type", "retry-after", "www-authenticate")


def socket_path(folder: str, worker: int) -> str:
    """Where a worker listens for its siblings."""
    return f"{folder}/{worker}.socket"


class Siblings:
    """An async context manager. With one worker everything is its own."""

    def __init__(self, worker: int = 0, workers: int = 1, folder: str = "", token: str | None = None) -> None:
        self.worker = worker
        self.workers = workers
        self._folder = folder
        self._token = token
        self._sessions: dict[int, aiohttp.ClientSession] = {}
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        for worker in range(self.workers):
            if worker != self.worker:
                connector = aiohttp.UnixConnector(socket_path(self._folder, worker), limit=0)
                session = aiohttp.ClientSession("http://worker", connector=connector, auto_decompress=False)
                self._sessions[worker] = await self._stack.enter_async_context(session)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    def elsewhere(self, key: str | None) -> int | None:
        """The worker to which an idempotency key belongs, if it is another."""
        if key is None or self.workers == 1:
            return None
        digest = hashlib.blake2b(key.encode(errors="surrogatepass"), digest_size=8).digest()
        owner = int.from_bytes(digest, "little") % self.workers
        return None if owner == self.worker else owner

    async def run(self, worker: int, request: RunRequest) -> RunResult:
        """Have another worker run it.

        Raises:
            ToolError, OverloadedError, SandboxError: what it answered, or that it cannot be reached.
        """
        large = is_large(request)
        body = await asyncio.to_thread(_encoded, request) if large else _encoded(request)
        headers = {"content-type": "application/json", **authorization(self._token)}
        try:
            async with self._sessions[worker].post(
                "/v1/run", data=io.BytesIO(body), headers=headers, timeout=aiohttp.ClientTimeout(total=None)
            ) as response:
                text = await response.read()
        except (aiohttp.ClientError, OSError) as error:
            raise _lost(worker) from error
        if response.status != HTTPStatus.OK:
            raise _as_error(response.status, text, response.headers.get("retry-after"))
        return RunResult.model_validate_json(text)

    async def forward(self, request: Request, worker: int) -> Response:
        """Pass a whole request on, and its answer back as it comes. A client that disconnects is passed on too.

        Raises:
            SandboxError: the worker cannot be reached.
            ClientGoneError: the client disconnected.
        """
        body = await request.body()
        headers = {name: value for name in _PASSED_ON if (value := request.headers.get(name)) is not None}
        path = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        asking = self._sessions[worker].request(
            request.method, path, data=io.BytesIO(body), headers=headers, timeout=aiohttp.ClientTimeout(total=None)
        )
        try:
            response = await while_connected(request, _opened(asking))
        except (aiohttp.ClientError, OSError) as error:
            raise _lost(worker) from error
        back = {name: value for name in _PASSED_BACK if (value := response.headers.get(name)) is not None}
        return StreamingResponse(_chunks(response), response.status, back)

    async def answers(self, path: str) -> list[bytes]:
        """What the others answer to a GET of `path` about themselves. One that is being restarted is left out."""
        headers = {ASKED_BY_SIBLING: "1", **authorization(self._token)}
        asked = [_answer(session, path, headers) for session in self._sessions.values()]
        return [text for text in await asyncio.gather(*asked) if text is not None]


class SessionsByWorker:
    """ASGI middleware: what concerns a session goes to the worker that has it, which its id names."""

    def __init__(self, app: ASGIApp, siblings: Siblings) -> None:
        self._app = app
        self._siblings = siblings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = _OF_SESSION.match(scope["path"]) if scope["type"] == "http" else None
        worker = int(found[1]) if found else self._siblings.worker
        if worker == self._siblings.worker or worker >= self._siblings.workers:
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        try:
            response = await self._siblings.forward(request, worker)
        except ClientGoneError:
            return
        except SandboxError as error:
            answer = {"kind": error.kind.value, "detail": str(error)}
            response = JSONResponse(answer, HTTPStatus.SERVICE_UNAVAILABLE)
        await response(scope, receive, send)


async def _opened(asking: Any) -> aiohttp.ClientResponse:
    response: aiohttp.ClientResponse = await asking
    return response


async def _chunks(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    async with response:
        async for chunk in response.content.iter_any():
            yield chunk


async def _answer(session: aiohttp.ClientSession, path: str, headers: dict[str, str]) -> bytes | None:
    try:
        async with session.get(path, headers=headers, timeout=aiohttp.ClientTimeout(total=_ANSWER_S)) as response:
            return await response.read() if response.status == HTTPStatus.OK else None
    except (aiohttp.ClientError, OSError):  # also TimeoutError
        return None


def _encoded(request: BaseModel) -> bytes:
    return request.model_dump_json().encode()


def _lost(worker: int) -> SandboxError:
    return SandboxError(f"worker {worker} of this server was lost, or is being restarted")


def _as_error(status: int, text: bytes, retry_after: str | None) -> ToolError | OverloadedError | SandboxError:
    try:
        detail = str(json.loads(text)["detail"])
    except (ValueError, TypeError, KeyError):
        detail = f"a worker answered {status}"
    if status in (HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.REQUEST_ENTITY_TOO_LARGE):
        return ToolError(detail, ErrorKind.ARGUMENTS)
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return OverloadedError(detail, float(retry_after or 1.0))
    return SandboxError(detail)
