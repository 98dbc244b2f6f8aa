"""Sessions: all of a server's, from their opening to their end, within its caps."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter, OrderedDict
from contextlib import suppress
from types import TracebackType
from typing import Protocol, Self

from ..schemas.errors import ErrorKind, OverloadedError, RollboxError, SandboxError, ToolError
from ..schemas.run import RunLimits
from ..schemas.session import CellRequest, CellResult, SessionInfo, SessionRequest, StateChange
from ..serving.admission import Admission
from . import session_errors
from .family import Family, ForkRefusedError
from .jail import policy
from .live_session import LiveSession, Turn
from .metrics import Metrics
from .programs import check_limits
from .session_verdict import HINDRANCES
from .settings import SandboxSettings

_MOST_REMEMBERED = 4096
_REAP_INTERVAL_S = 0.5
_RETRY_AFTER_S = 5.0
_SHOWN_ID_CHARS = 6


class SessionPool(Protocol):
    """A pool that can open sessions."""

    @property
    def admission(self) -> Admission: ...

    async def open_session(self, request: SessionRequest) -> tuple[str, Family]: ...


class Sessions:
    """The sessions of one server. Leaving the context ends them all."""

    def __init__(self, pool: SessionPool, settings: SandboxSettings, metrics: Metrics) -> None:
        self._pool = pool
        self._settings = settings
        self._metrics = metrics
        self._live: dict[str, LiveSession] = {}
        self._gone: OrderedDict[str, tuple[str, ErrorKind]] = OrderedDict()
        self._opening: Counter[str] = Counter()
        self._reaper: asyncio.Task[None] | None = None
        metrics.watch_sessions(lambda: len(self._live))

    async def __aenter__(self) -> Self:
        self._reaper = asyncio.create_task(self._reap())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._reaper is not None:
            self._reaper.cancel()
            with suppress(asyncio.CancelledError):
                await self._reaper
        for session in list(self._live.values()):
            self._end(session, "the server has ended", ErrorKind.INFRA, "shutdown")

    @property
    def live(self) -> int:
        return len(self._live)

    # --- what clients ask --------------------------------------------------------------------------------------------

    async def create(self, request: SessionRequest) -> SessionInfo:
        """Open a session.

        Raises:
            ToolError: (kind `arguments`) it asks for more than this server gives, or cannot be served as it is.
            OverloadedError: there are as many sessions as there may be.
            SandboxError: it could not be opened.
        """
        try:
            check_limits(request.limits, self._settings)
            self._check_room(request.client, 1)
            self._opening[request.client] += 1
            try:
                tier, family = await self._pool.open_session(request)
            finally:
                self._opening[request.client] -= 1
        except RollboxError as error:
            self._metrics.count_error(error)
            raise
        most_s = self._settings.session_idle_s
        idle_s = most_s if request.idle_s is None else min(request.idle_s, most_s)
        info = SessionInfo(id=self._new_id(), client=request.client, tier=tier)
        self._metrics.count_session("opened")
        return self._add(info, family, 0, request.limits, idle_s).info()

    async def run(self, session_id: str, request: CellRequest) -> CellResult:
        """Run a cell. Cancelling the last that waits for it ends the cell and undoes it.

        Raises:
            ToolError: (kind `arguments`) it asks for more than this server gives.
            SessionRefusedError: the session is not there, or was lost meanwhile; or the key was used for another cell.
            OverloadedError: the queue is full.
            SandboxError: the cell could not be run.
        """
        session = self.get(session_id)
        if request.wall_s is not None and request.wall_s > self._settings.max_wall_s:
            text = f"wall_s: {request.wall_s} is more than this server allows ({self._settings.max_wall_s})"
            raise ToolError(text, ErrorKind.ARGUMENTS)

        async def turn(own: Turn) -> CellResult:
            async with session.lock:
                self.get(session_id)
                try:
                    result = await session.cell(request, self._pool.admission, own)
                except SandboxError:
                    self.get(session_id)  # says why it is gone, if it is
                    raise
            self._metrics.count_cell(result)
            if result.state is StateChange.LOST and session_id in self._live:
                self._end(session, f"in cell {result.cell}, {result.state_note}", ErrorKind.USER_CODE, "cell")
            return result

        try:
            return await session.run(request, turn)
        except RollboxError as error:
            self._metrics.count_error(error)
            raise

    async def fork(self, session_id: str, n: int) -> list[SessionInfo]:
        """Make `n` copies of a session, all or none, once its cells before have ended.

        Raises:
            SessionRefusedError: the session is not there, cannot be forked as it is, or its family would be too large.
            OverloadedError: there would be more sessions than there may be.
            SandboxError: the session was lost.
        """
        session = self.get(session_id)
        async with session.lock:
            self.get(session_id)
            self._check_room(session.client, n)
            relatives = sum(each.family is session.family for each in self._live.values())
            if relatives + n > policy.FAMILY_MOST:
                text = f"it and its forks are {policy.FAMILY_MOST} at most, and {relatives} are live"
                raise session_errors.cannot_fork(text)
            self._opening[session.client] += n
            try:
                numbers = await session.family.fork(session.number, n)
            except ForkRefusedError as error:
                raise session_errors.cannot_fork(_reason(error.hindrance)) from None
            except SandboxError:
                self.get(session_id)
                raise
            finally:
                self._opening[session.client] -= n
                session.used_s = time.monotonic()
        return [self._add_copy(session, number).info() for number in numbers]

    def _add_copy(self, session: LiveSession, number: int) -> LiveSession:
        own = session.info()
        info = SessionInfo(
            id=self._new_id(), client=own.client, tier=own.tier, parent=self.shown(own.id), cells=own.cells
        )
        self._metrics.count_session("forked")
        return self._add(info, session.family, number, session.limits, session.idle_s)

    def get(self, session_id: str) -> LiveSession:
        """
        Raises:
            SessionRefusedError: it is not there; the text says why.
        """
        session = self._live.get(session_id)
        if session is not None:
            return session
        if session_id in self._gone:
            raise session_errors.gone(*self._gone[session_id])
        raise session_errors.unknown(session_id)

    def close(self, session_id: str) -> None:
        """End a session, and the cell that runs.

        Raises:
            SessionRefusedError: it is not there.
        """
        self._end(self.get(session_id), "it was closed by its client", ErrorKind.USER_CODE, "closed")

    def listed(self, client: str | None) -> list[SessionInfo]:
        """All, or those of a client, the oldest first. Their ids are cut: a whole one is the right to use it."""
        infos = [each.info() for each in self._live.values() if client is None or each.client == client]
        return [info.model_copy(update={"id": self.shown(info.id)}) for info in infos]

    @staticmethod
    def shown(session_id: str) -> str:
        worker, _, secret = session_id.partition("-")
        return f"{worker}-{secret[:_SHOWN_ID_CHARS]}…"

    # --- their lives -------------------------------------------------------------------------------------------------

    def _new_id(self) -> str:
        return f"s{self._settings.worker}-{secrets.token_hex(16)}"

    def _check_room(self, client: str, n: int) -> None:
        live, own = len(self._live) + self._opening.total(), self._opening[client]
        own += sum(each.client == client for each in self._live.values())
        for what, have, most in (
            ("sessions are", live, self._settings.max_sessions),
            (f"sessions of client {client!r} are", own, self._settings.max_sessions_per_client),
        ):
            if have + n > most:
                text = f"{have} {what} live, of {most} at most: close some, or wait until some have expired"
                raise OverloadedError(text, retry_after_s=_RETRY_AFTER_S)

    def _add(self, info: SessionInfo, family: Family, number: int, limits: RunLimits, idle_s: float) -> LiveSession:
        session = LiveSession(info, family, number, limits, idle_s, self._settings.session_lifetime_s)
        self._live[info.id] = session
        family.add(number, lambda why, own_doing: self._lost(session, why, own_doing))
        return session

    def _lost(self, session: LiveSession, why: str, own_doing: bool) -> None:
        if session.id in self._live:
            del self._live[session.id]
            kind = ErrorKind.USER_CODE if own_doing else ErrorKind.INFRA
            self._remember(session, why if own_doing else f"session_lost: {why}", kind)
            self._metrics.count_session_end("own_process" if own_doing else "infra")

    def _end(self, session: LiveSession, why: str, kind: ErrorKind, label: str) -> None:
        del self._live[session.id]
        self._remember(session, why, kind)
        self._metrics.count_session_end(label)
        session.family.end(session.number)

    def _remember(self, session: LiveSession, why: str, kind: ErrorKind) -> None:
        self._gone[session.id] = (why, kind)
        while len(self._gone) > _MOST_REMEMBERED:
            self._gone.popitem(last=False)

    async def _reap(self) -> None:
        while True:
            await asyncio.sleep(_REAP_INTERVAL_S)
            now_s = time.monotonic()
            for session in list(self._live.values()):
                if now_s - session.created_s > session.lifetime_s:
                    text = f"it lived for {session.lifetime_s:g} s, the most on this server"
                    self._end(session, text, ErrorKind.INFRA, "lifetime")
                elif not session.is_busy and now_s - session.used_s > session.idle_s:
                    self._end(session, f"it was idle for {session.idle_s:g} s", ErrorKind.INFRA, "idle")


def _reason(hindrance: bytes | str) -> str:
    return HINDRANCES.get(hindrance, "it does not answer") if isinstance(hindrance, bytes) else hindrance
