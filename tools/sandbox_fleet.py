"""SandboxFleet: several sandbox servers as one. Calls go to the least busy; sick servers are left out for a while."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from time import monotonic
from types import TracebackType
from typing import Self
from uuid import uuid4

from ..sandbox.client import Sandbox
from ..sandbox.session_client import SandboxSession
from ..schemas.errors import ConfigError, OverloadedError, SandboxError
from ..schemas.run import RunRequest, RunResult
from ..schemas.session import SessionRequest

_FIRST_REST_S, _LONGEST_REST_S = 1.0, 60.0
_ROUNDS = 3
_PAUSE_S = 0.2


@dataclass(slots=True)
class _Member:
    """Attributes:
    outstanding: calls of ours that it has now. failures: in a row. rests_until: `time.monotonic()` seconds.
    """

    sandbox: Sandbox
    outstanding: int = 0
    failures: int = 0
    rests_until: float = 0.0


class SandboxFleet:
    """Runs programs on any of several servers; as an async context manager.

    A server that cannot be reached, or cannot run code, rests for a second, then twice as long each time. After its
    rest one call tries it; the others go on using the rest of the fleet until that call has come back well.

    Args:
        urls: the servers' addresses. token: what they all ask for.

    Raises:
        ConfigError: an address is none, or is there twice.
    """

    def __init__(self, urls: Sequence[str], token: str | None = None) -> None:
        if len(set(urls)) < len(urls):
            raise ConfigError(f"sandbox url: an address is there twice: {', '.join(urls)}")
        # No retries of its own: the next try is another server's.
        self._members = [_Member(Sandbox.connect(url, max_retries=0, token=token)) for url in urls]
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

        A program whose server fails is run again on another one.

        Raises:
            ToolError: (kind `arguments`) a server refuses the request.
            OverloadedError: the queue stayed full. SandboxError: no server could run it.
        """
        request = request.model_copy(update={"idempotency_key": request.idempotency_key or uuid4().hex})
        deadline = None if deadline_s is None else monotonic() + deadline_s
        retries = 0
        while True:
            remaining_s = None if deadline is None else deadline - monotonic()
            try:
                with self._chosen() as member:
                    result, more = await member.sandbox.run_counted(request, deadline_s=remaining_s)
                    return result, retries + more
            except OverloadedError as error:
                error.retries += retries
                raise
            except SandboxError as error:
                pause_s = self._pause_s(retries)
                if retries + 1 >= _ROUNDS * len(self._members) or (
                    deadline is not None and monotonic() + pause_s >= deadline
                ):
                    error.retries += retries
                    raise
            await asyncio.sleep(pause_s)
            retries += 1

    async def create_session(
        self, request: SessionRequest | None = None, *, deadline_s: float = 300.0
    ) -> SandboxSession:
        """Open a session on the least busy server, where it stays.

        Raises:
            ToolError, OverloadedError, SandboxError: as for `Sandbox.create_session`; the last from every server.
        """
        deadline = monotonic() + deadline_s
        for tries in range(1, len(self._members) + 1):
            try:
                with self._chosen() as member:
                    return await member.sandbox.create_session(request, deadline_s=deadline - monotonic())
            except SandboxError:
                if tries == len(self._members) or monotonic() >= deadline:
                    raise
        raise AssertionError("a fleet has members")

    def resting(self) -> list[str]:
        """The addresses that are left out at the moment."""
        now = monotonic()
        return [member.sandbox.url for member in self._members if member.rests_until > now]

    @contextmanager
    def _chosen(self) -> Iterator[_Member]:
        member = self._choose()
        member.outstanding += 1
        try:
            yield member
        except SandboxError:
            member.failures += 1
            rest_s = min(_FIRST_REST_S * 2 ** (member.failures - 1), _LONGEST_REST_S)
            # Jitter: the workers of a job must not all come back at the same moment.
            member.rests_until = monotonic() + rest_s * random.uniform(0.5, 1.0)
            raise
        else:
            member.failures, member.rests_until = 0, 0.0
        finally:
            member.outstanding -= 1

    def _choose(self) -> _Member:
        now = monotonic()
        well = [member for member in self._members if not member.failures]
        rested = [member for member in self._members if member.failures and member.rests_until <= now]
        if rested:
            member = min(rested, key=lambda member: member.rests_until)
            member.rests_until = now + _FIRST_REST_S  # this call alone tries it
            return member
        if well:
            fewest = min(member.outstanding for member in well)
            return random.choice([member for member in well if member.outstanding == fewest])
        return min(self._members, key=lambda member: member.rests_until)

    def _pause_s(self, retries: int) -> float:
        """None while another server is well; else longer each round, so that a fleet that restarts is waited for."""
        if any(not member.failures for member in self._members):
            return 0.0
        return _PAUSE_S * float(2 ** (retries // len(self._members))) * random.uniform(0.5, 1.0)
