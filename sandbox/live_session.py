"""A live session: its cells, one at a time, each of them once."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from typing import Any

from ..schemas.errors import SandboxError
from ..schemas.run import RunLimits
from ..schemas.session import CellRequest, CellResult, SessionInfo, StateChange
from ..serving.admission import Admission
from . import session_errors
from .capture import Capture
from .cell_streams import CellStreams
from .family import Family
from .jail.frames import CellOrder
from .job import cell_job, cpu_s, encoded, is_large
from .session_verdict import judge_cell, read_report

_MOST_KEPT = 8
_MOST_KEPT_CHARS = 8 << 20
_LARGE_REPORT_BYTES = 262_144


class Turn:
    """One cell, and those who wait for its result. It is ended when the last of them has gone."""

    def __init__(self, fingerprint: bytes) -> None:
        self.fingerprint = fingerprint
        self.callers = 0
        self.end: Callable[[], None] | None = None
        self.was_left = False
        self.task: asyncio.Task[CellResult]

    def leave(self) -> None:
        self.was_left = True
        if self.end is not None:
            self.end()
        else:
            self.task.cancel()


class LiveSession:
    """One member of a family.

    Attributes:
        id: as clients know it. number: in its family. limits: of each cell.
        idle_s: how long it may be without a cell. created_s, used_s: CLOCK_MONOTONIC.
    """

    def __init__(
        self, info: SessionInfo, family: Family, number: int, limits: RunLimits, idle_s: float, lifetime_s: float
    ) -> None:
        self.id = info.id
        self.client = info.client
        self.family = family
        self.number = number
        self.limits = limits
        self.idle_s = idle_s
        self.lifetime_s = lifetime_s
        self.created_s = self.used_s = time.monotonic()
        self.cells = info.cells
        self.lock = asyncio.Lock()
        """Held by what uses the session's process."""
        self._parent = info.parent
        self._tier = info.tier
        self._turns: dict[str | object, Turn] = {}
        self._kept: OrderedDict[str, tuple[bytes, CellResult]] = OrderedDict()

    @property
    def is_busy(self) -> bool:
        return bool(self._turns) or self.lock.locked()

    def info(self) -> SessionInfo:
        now_s = time.monotonic()
        unused_s = 0.0 if self.is_busy else now_s - self.used_s
        return SessionInfo(
            id=self.id,
            client=self.client,
            parent=self._parent,
            tier=self._tier,
            status="running" if self.is_busy else "idle",
            cells=self.cells,
            age_s=now_s - self.created_s,
            idle_s=unused_s,
            idle_left_s=max(0.0, self.idle_s - unused_s),
            lifetime_left_s=max(0.0, self.created_s + self.lifetime_s - now_s),
        )

    async def run(self, request: CellRequest, start: Callable[[Turn], Coroutine[Any, Any, CellResult]]) -> CellResult:
        """The result of the first cell with the request's key, or of `start` if there is none.

        Raises:
            SessionRefusedError: the key was used for another cell. Else what `start` raises.
        """
        fingerprint = await asyncio.to_thread(_fingerprint, request) if is_large(request) else _fingerprint(request)
        key: str | object = object() if request.idempotency_key is None else request.idempotency_key
        kept = self._kept.get(key) if isinstance(key, str) else None
        turn = self._turns.get(key)
        if (kept is not None and kept[0] != fingerprint) or (turn is not None and turn.fingerprint != fingerprint):
            raise session_errors.other_cell()
        if kept is not None:
            return kept[1].model_copy()
        if turn is None or turn.was_left:
            turn = self._turns[key] = Turn(fingerprint)
            turn.task = asyncio.create_task(start(turn))
            turn.task.add_done_callback(lambda task: self._turn_ended(key, turn, task))
        return await _result(turn)

    def _turn_ended(self, key: str | object, turn: Turn, task: asyncio.Task[CellResult]) -> None:
        if self._turns.get(key) is turn:
            del self._turns[key]
        if task.cancelled() or task.exception() is not None:
            return
        result = task.result()
        # One that nobody waited for any more, and that was undone, has not run.
        if isinstance(key, str) and not (turn.was_left and result.state is StateChange.ROLLED_BACK):
            self._kept[key] = (turn.fingerprint, result)
            sizes = [_size(each) for _, each in self._kept.values()]
            while len(sizes) > _MOST_KEPT or (len(sizes) > 1 and sum(sizes) > _MOST_KEPT_CHARS):
                self._kept.popitem(last=False)
                sizes.pop(0)

    async def cell(self, request: CellRequest, admission: Admission, turn: Turn) -> CellResult:
        """Wait for a place, and run the cell. The session's lock must be held.

        Raises:
            OverloadedError: the queue is full.
            SandboxError: the session was lost, or the cell could not be started.
        """
        asked_s = time.monotonic()
        job = cell_job(request)
        stdin = None if request.stdin is None else encoded(request.stdin)
        async with admission.slot(self.client) as queue_ms:
            order = self._order(request)
            turn.end = lambda: self.family.end_cell(self.number, order["cell"])
            keep = self.limits
            out, err = (Capture(keep.output_bytes, keep.output_kill_mb << 20, turn.end) for _ in range(2))
            streams = CellStreams(job, stdin, out, err)
            try:
                outcome = await self.family.run_cell(order, streams)
            except OSError as error:
                raise SandboxError(f"the cell could not be started: {error.strerror or error}") from error
            finally:
                self.used_s = time.monotonic()
        said = streams.report
        large = len(said) >= _LARGE_REPORT_BYTES
        report = await asyncio.to_thread(read_report, said) if large else read_report(said)
        result = judge_cell(request, self.limits, order, outcome, report, (out, err), asked_s=asked_s)
        result.queue_ms = queue_ms
        return result

    def _order(self, request: CellRequest) -> CellOrder:
        self.cells += 1
        wall_s = self.limits.wall_s if request.wall_s is None else request.wall_s
        return CellOrder(
            member=self.number,
            cell=self.cells,
            wall_s=wall_s,
            cpu_s=cpu_s(self.limits, wall_s),
            memory_bytes=self.limits.memory_mb << 20,
            processes=self.limits.processes,
            transactional=request.transactional,
        )


async def _result(turn: Turn) -> CellResult:
    turn.callers += 1
    try:
        return (await asyncio.shield(turn.task)).model_copy()
    except asyncio.CancelledError:
        if turn.callers == 1 and not turn.task.done():
            turn.leave()
            await asyncio.wait({turn.task})
        raise
    finally:
        turn.callers -= 1


def _size(result: CellResult) -> int:
    return (
        len(result.stdout) + len(result.stderr) + sum(map(len, result.files.values())) + sum(map(len, result.figures))
    )


def _fingerprint(request: CellRequest) -> bytes:
    return hashlib.sha256(request.model_dump_json().encode(errors="replace")).digest()
