"""SandboxFleet: several sandbox servers as one. Calls go to the least busy; sick servers are left out for a while."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from time import monotonic
from types import TracebackType
from typing import Self, TypeVar
from uuid import uuid4

from ..sandbox import backoff
from ..sandbox.client import Sandbox, allowed_s
from ..sandbox.session_client import SandboxSession
from ..schemas.errors import ConfigError, InfraError, OverloadedError, SandboxError
from ..schemas.run import RunRequest, RunResult
from ..schemas.session import SessionRequest
from ..serving.least_busy import FIRST_REST_S, EqualServer, choose

_LONGEST_REST_S = 60.0
_ROUNDS = 3
_PAUSE_S = 0.2
T = TypeVar("T")


@dataclass(slots=True, eq=False)
class _Member(EqualServer):
    """`full`: times in a row that its queue was."""

    sandbox: Sandbox
    full: int = 0


class SandboxFleet:
    """Runs programs on any of several servers; as an async context manager.

    A server that cannot be reached, or cannot run code, rests for a second, then twice as long each time. After its
    rest one call tries it; the others go on using the rest of the fleet until that call has come back well.
    A server whose queue is full is passed over for as long as it says.

    Args:
        urls: the servers' addresses. token: what they all ask for.

    Raises:
        ConfigError: an address is none, or is there twice.
    """

    def __init__(self, urls: Sequence[str], token: str | None = None) -> None:
        if len(set(urls)) < len(urls):
            raise ConfigError(f"sandbox url: an address is there twice: {', '.join(urls)}")
        # No retries of its own: the next try is another server's.
        connect = partial(Sandbox.connect, max_retries=0, token=token, waits_when_full=False)
        self._members = [_Member(connect(url)) for url in urls]
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        for member in self._members:
            await self._stack.enter_async_context(member.sandbox)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def run_counted(self, request: RunRequest, *, deadline_s: float | None = None) -> tuple[RunResult, int]:
        """Run a program; the result, and how often it was tried again.

        A program whose server fails, or is full, is run on another one.

        Raises:
            ToolError: (kind `arguments`) a server refuses the request.
            OverloadedError: all queues stayed full. SandboxError: no server could run it.
        """
        request = request.model_copy(update={"idempotency_key": request.idempotency_key or uuid4().hex})
        deadline = monotonic() + (allowed_s(request) if deadline_s is None else deadline_s)

        async def run(sandbox: Sandbox) -> RunResult:
            result, _ = await sandbox.run_counted(request, deadline_s=deadline - monotonic())
            return result

        return await self._retried(run, deadline)

    async def create_session(
        self, request: SessionRequest | None = None, *, deadline_s: float = 300.0
    ) -> SandboxSession:
        """Open a session on the least busy server, where it stays.

        Raises:
            ToolError, OverloadedError, SandboxError: as for `Sandbox.create_session`; the last from every server.
        """
        deadline = monotonic() + deadline_s

        async def create(sandbox: Sandbox) -> SandboxSession:
            return await sandbox.create_session(request, deadline_s=deadline - monotonic())

        session, _ = await self._retried(create, deadline)
        return session

    def resting(self) -> list[str]:
        """The addresses that are left out at the moment."""
        now = monotonic()
        return [member.sandbox.url for member in self._members if member.rests_until > now]

    async def _retried(self, attempt: Callable[[Sandbox], Awaitable[T]], deadline: float) -> tuple[T, int]:
        """What `attempt` returns on one of the servers, and how often it was tried again."""
        failures = retries = 0
        while True:
            try:
                with self._chosen() as member:
                    return await attempt(member.sandbox), retries
            except (SandboxError, OverloadedError) as error:
                failures += isinstance(error, SandboxError)
                pause_s = self._pause_s(error, retries)
                if failures >= _ROUNDS * len(self._members) or monotonic() + pause_s >= deadline:
                    error.retries += retries
                    raise
            await asyncio.sleep(pause_s)
            retries += 1

    @contextmanager
    def _chosen(self) -> Iterator[_Member]:
        member = choose(self._members, monotonic())
        member.outstanding += 1
        try:
            yield member
        except OverloadedError as error:
            member.rests_until = monotonic() + backoff.pause_s(error, member.full)
            member.failures, member.full = 0, member.full + 1
            raise
        except SandboxError:
            member.failures += 1
            rest_s = min(FIRST_REST_S * 2 ** (member.failures - 1), _LONGEST_REST_S)
            # Jitter: the workers of a job must not all come back at the same moment.
            member.rests_until = monotonic() + rest_s * random.uniform(0.5, 1.0)
            raise
        else:
            member.failures, member.full, member.rests_until = 0, 0, 0.0
        finally:
            member.outstanding -= 1

    def _pause_s(self, error: InfraError, retries: int) -> float:
        """None while another server is well; else longer each round, so that a fleet that restarts is waited for."""
        now = monotonic()
        if any(member.is_well(now) for member in self._members):
            return 0.0
        if isinstance(error, OverloadedError):
            return backoff.pause_s(error, retries // len(self._members))
        return _PAUSE_S * float(2 ** (retries // len(self._members))) * random.uniform(0.5, 1.0)
