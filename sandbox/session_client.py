"""SandboxSession: the client of one stateful session."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar
from uuid import uuid4

from pydantic import BaseModel, ValidationError

from ..schemas.errors import ErrorKind, InfraError, OverloadedError, SandboxError, SessionLostError, ToolError
from ..schemas.session import CellRequest, CellResult, ForkAnswer, ForkRequest, SessionInfo, SessionRequest
from ..schemas.validation import describe
from .backoff import pause_s

if TYPE_CHECKING:
    from .client import Sandbox

M = TypeVar("M", bound=BaseModel)
_QUEUE_ALLOWANCE_S = 300.0
_CLOSE_S = 10.0
_LARGE_CHARS = 262_144


class SandboxSession:
    """A session of a sandbox server, as an async context manager that closes it.

    Made by `Sandbox.create_session` and `fork`. Cells run one at a time; others wait for their turn.
    """

    def __init__(self, sandbox: Sandbox, info: SessionInfo, wall_s: float) -> None:
        """`wall_s` is the limit of a cell that names none."""
        self._sandbox = sandbox
        self._wall_s = wall_s
        self.id = info.id

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def run(
        self,
        code: str,
        *,
        wall_s: float | None = None,
        stdin: str | None = None,
        transactional: bool = True,
        figures: bool = False,
        fetch_files: Sequence[str] = (),
        deadline_s: float | None = None,
    ) -> CellResult:
        """Run a cell. A full queue and failures of ours are retried within the deadline; no cell is run twice.

        Args:
            wall_s: seconds; None takes the session's own limit.
            transactional: put the session back as it was when the cell does not end by itself.
            deadline_s: None allows the cell's wall limit and five minutes of queue.

        Raises:
            ToolError: (kind `arguments`) the server refuses the request; (kind `user_code`) an earlier cell ended the
                session.
            SessionLostError: the session has expired, or was lost with its server.
            OverloadedError: the queue stayed full.
            SandboxError: the server could not be reached or could not run the cell.
        """
        try:
            request = CellRequest(
                code=code,
                stdin=stdin,
                wall_s=wall_s,
                transactional=transactional,
                figures=figures,
                fetch_files=list(fetch_files),
                idempotency_key=uuid4().hex,
            )
        except ValidationError as error:
            raise ToolError(describe(error), ErrorKind.ARGUMENTS) from None
        allowed_s = (wall_s or self._wall_s) + _QUEUE_ALLOWANCE_S if deadline_s is None else deadline_s
        large = len(code) + len(stdin or "") >= _LARGE_CHARS
        body = await asyncio.to_thread(encoded, request) if large else encoded(request)
        text = await retried(self._sandbox, f"/v1/sessions/{self.id}/run", body, allowed_s)
        return decoded(CellResult, text, self._sandbox.url)

    async def fork(self, n: int = 1, *, deadline_s: float = 60.0) -> list[SandboxSession]:
        """`n` copies of the session as it is now: same variables, open files and work dir, each on its own from here.

        Raises:
            ToolError: (kind `user_code`) it cannot be forked as it is, such as with live threads; the text says why.
            SessionLostError, OverloadedError, SandboxError: as for `run`.
        """
        path = f"/v1/sessions/{self.id}/fork"
        text = await retried(self._sandbox, path, encoded(ForkRequest(n=n)), deadline_s, only_overload=True)
        answer = decoded(ForkAnswer, text, self._sandbox.url)
        return [SandboxSession(self._sandbox, info, self._wall_s) for info in answer.sessions]

    async def info(self) -> SessionInfo:
        """
        Raises:
            SessionLostError, ToolError, SandboxError: as for `run`.
        """
        text = await self._sandbox.exchange("GET", f"/v1/sessions/{self.id}", _CLOSE_S)
        return decoded(SessionInfo, text, self._sandbox.url)

    async def close(self) -> None:
        """End the session, and the cell that runs. One that has ended already is left at that.

        Raises:
            SandboxError: the server cannot be reached.
        """
        try:
            await self._sandbox.exchange("DELETE", f"/v1/sessions/{self.id}", _CLOSE_S)
        except (SessionLostError, ToolError):
            return


async def opened(sandbox: Sandbox, request: SessionRequest, deadline_s: float) -> SandboxSession:
    """Open a session. An answer that is lost on the way may leave one behind until its idle time is over.

    Raises:
        ToolError: (kind `arguments`) the server refuses the request.
        OverloadedError: there are as many sessions as the server or its client may have.
        SandboxError: the server could not be reached or could not open it.
    """
    large = sum(map(len, request.files.values())) >= _LARGE_CHARS
    body = await asyncio.to_thread(encoded, request) if large else encoded(request)
    text = await retried(sandbox, "/v1/sessions", body, deadline_s, waits_when_full=sandbox.waits_when_full)
    return SandboxSession(sandbox, decoded(SessionInfo, text, sandbox.url), request.limits.wall_s)


async def retried(
    sandbox: Sandbox,
    path: str,
    body: bytes,
    allowed_s: float,
    *,
    only_overload: bool = False,
    waits_when_full: bool = True,
) -> str:
    """POST until an answer is there. Failures of ours, but not a lost session, are tried again in `allowed_s` seconds.

    Args:
        only_overload: for what must not be done twice, and has no key that prevents it.
        waits_when_full: see `Sandbox.connect`; a session that is there waits always.
    """
    deadline = time.monotonic() + allowed_s
    failures = retries = 0
    while True:
        try:
            return await sandbox.exchange("POST", path, deadline - time.monotonic(), body)
        except SessionLostError:
            raise
        except InfraError as error:
            overloaded = isinstance(error, OverloadedError)
            failures += not overloaded
            wait_s = pause_s(error, retries)
            over = failures > (0 if only_overload else sandbox.max_retries) or (overloaded and not waits_when_full)
            if over or time.monotonic() + wait_s >= deadline:
                error.retries = retries
                raise
        await asyncio.sleep(wait_s)
        retries += 1


def encoded(request: BaseModel) -> bytes:
    """
    Raises:
        ToolError: (kind `arguments`) it holds lone surrogates.
    """
    try:
        return request.model_dump_json().encode()
    except ValueError as error:  # pydantic cannot serialise lone surrogates
        raise ToolError(f"code: not valid Unicode text ({error})", ErrorKind.ARGUMENTS) from None


def decoded(model: type[M], text: str, url: str) -> M:
    """
    Raises:
        SandboxError: it is something else.
    """
    try:
        return model.model_validate_json(text)
    except ValidationError:
        shown = " ".join(text.split())[:200]
        raise SandboxError(f"{url} answered with something else than a {model.__name__}: {shown}") from None
