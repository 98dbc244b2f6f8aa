"""The server's end of a slot that is a session with its forks: gives cells to its members, learns how they ended."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ..schemas.errors import SandboxError
from .cell_streams import CellStreams
from .failures import explained
from .jail import messages
from .jail.frames import CellOrder, CellOutcome

_logger = logging.getLogger(__name__)

_OPEN_S = 60.0
_CELL_GRACE_S = 60.0
_FORK_S = 60.0
_SERVER_LOST = "the process that held it was lost"


class ForkRefusedError(Exception):
    """No copies were made. `hindrance` is a letter of `jail.head`, or what the kernel said."""

    def __init__(self, hindrance: bytes | str) -> None:
        super().__init__(str(hindrance))
        self.hindrance = hindrance


class Family:
    """One slot with a session, member 0, and its forks. Build it with `opened`."""

    def __init__(self, channel: socket.socket, on_end: Callable[[], None]) -> None:
        """Takes over `channel`. `on_end` is called once, when the slot has ended or is given up."""
        self._loop = asyncio.get_running_loop()
        self._channel = channel
        self._on_end = on_end
        self._unsent: deque[tuple[bytes, Any, tuple[int, ...]]] = deque()
        self._first: asyncio.Future[Any] = self._loop.create_future()
        self._members: dict[int, Callable[[str, bool], None]] = {}
        self._cells: dict[int, asyncio.Future[CellOutcome]] = {}
        self._forks: dict[int, asyncio.Future[None]] = {}
        self._streams: set[CellStreams] = set()
        self._next = 1
        self.is_open = True
        channel.setblocking(False)
        self._loop.add_reader(channel.fileno(), self._readable)

    async def open(self, job: bytes) -> None:
        """Have the slot's child become the session that `job` describes.

        Raises:
            ToolError: (kind `arguments`) the request is at fault.
            SandboxError: the slot was lost, or did not answer.
        """
        try:
            async with asyncio.timeout(_OPEN_S):
                number, fds = await self._first
                with socket.socket(fileno=fds[0]) as sock:
                    for fd in fds[1:]:
                        os.close(fd)
                    sock.setblocking(False)
                    self._first = self._loop.create_future()
                    await self._loop.sock_sendall(sock, job)
                    self._send(messages.SESSION, number)
                    await self._first
        except TimeoutError:
            self.close()
            raise SandboxError(f"the session was not open after {_OPEN_S:.0f} s") from None
        except OSError as error:
            self.close()
            raise SandboxError(f"the session could not be opened: {error.strerror or error}") from error
        except BaseException:
            self.close()
            raise

    def add(self, member: int, on_lost: Callable[[str, bool], None]) -> None:
        """`on_lost` is called once with why the member is gone, and whether it brought that about itself."""
        self._members[member] = on_lost

    # --- the channel -------------------------------------------------------------------------------------------------

    def _readable(self) -> None:
        try:
            kind, value, fds = messages.receive(self._channel)
        except BlockingIOError:
            return
        except OSError:
            kind, value, fds = b"", None, []
        if kind == messages.READY or kind == messages.OPENED:
            if self._first.done():
                for fd in fds:
                    os.close(fd)
            else:
                self._first.set_result((value, fds))
        elif kind == messages.CELL_ENDED:
            _settle(self._cells.pop(value["member"], None), value)
        elif kind == messages.FORKED:
            waiting = self._forks.pop(value[0], None)
            if waiting is not None and not waiting.done():
                if value[1] is None:
                    waiting.set_result(None)
                else:
                    waiting.set_exception(ForkRefusedError(value[1]))
        elif kind == messages.LOST:
            self._member_lost(value[0], value[1], own_doing=True)
        else:
            if kind == messages.FAILED:
                failure = explained(value)  # which also logs it
                if not self._first.done():
                    self._first.set_exception(failure)
            else:
                _logger.error("a session's supervisor is gone, with %d members", len(self._members))
            self.close()

    def _send(self, kind: bytes, value: Any, fds: tuple[int, ...] = ()) -> None:
        """Takes over `fds`."""
        if not self.is_open:
            for fd in fds:
                os.close(fd)
            return
        self._unsent.append((kind, value, fds))
        if len(self._unsent) == 1:
            self._write()

    def _write(self) -> None:
        while self._unsent:
            kind, value, fds = self._unsent[0]
            try:
                messages.send(self._channel, kind, value, fds)
            except BlockingIOError:
                self._loop.add_writer(self._channel.fileno(), self._write)
                return
            except OSError as error:
                _logger.error("a session's supervisor cannot be told anything: %s", error)
                self.close()
                return
            self._unsent.popleft()
            for fd in fds:
                os.close(fd)
        self._loop.remove_writer(self._channel.fileno())

    def close(self, why: str = _SERVER_LOST) -> None:
        """Give the slot up: when its channel closes, its init ends, and everything in it. Safe to call again."""
        if not self.is_open:
            return
        self.is_open = False
        self._loop.remove_reader(self._channel.fileno())
        self._loop.remove_writer(self._channel.fileno())
        self._channel.close()
        for _, _, fds in self._unsent:
            for fd in fds:
                os.close(fd)
        self._unsent.clear()
        if not self._first.done():
            self._first.set_exception(SandboxError("the slot of this session was lost"))
            self._first.exception()  # perhaps nobody waits any more
        for member in list(self._members):
            self._member_lost(member, why, own_doing=False)
        for streams in list(self._streams):
            streams.close()
        self._streams.clear()
        self._on_end()

    def _member_lost(self, member: int, why: str, *, own_doing: bool) -> None:
        on_lost = self._members.pop(member, None)
        for waiting in (self._cells.pop(member, None), self._forks.pop(member, None)):
            if waiting is not None and not waiting.done():
                waiting.set_exception(SandboxError(why))
        if on_lost is not None:
            on_lost(why, own_doing)

    # --- what members do ---------------------------------------------------------------------------------------------

    async def run_cell(self, order: CellOrder, streams: CellStreams) -> CellOutcome:
        """Run a cell. When this returns, it has ended, and `streams` hold what it said.

        Not to be cancelled: `end_cell` makes it return soon.

        Raises:
            SandboxError: the member was lost, or its slot was silent for long after the cell's time.
            OSError: out of descriptors or memory.
        """
        member = order["member"]
        passed = streams.start()
        ended = self._cells[member] = self._loop.create_future()
        patience = self._loop.call_later(order["wall_s"] + _CELL_GRACE_S, self.close, "its supervisor did not answer")
        self._streams.add(streams)
        self._send(messages.CELL, order, passed)
        if not self.is_open and not ended.done():
            ended.set_exception(SandboxError(_SERVER_LOST))
        try:
            outcome: CellOutcome = await ended
            return outcome
        finally:
            patience.cancel()
            streams.finish(self._streams.discard)

    def end_cell(self, member: int, cell: int) -> None:
        """Ask init to end the cell, and to undo it if that can be done."""
        self._send(messages.END_CELL, (member, cell))

    async def fork(self, member: int, n: int) -> list[int]:
        """Make `n` copies of a member, all or none; returns their numbers.

        Raises:
            ForkRefusedError: it cannot be forked as it is.
            SandboxError: the member was lost.
        """
        numbers = list(range(self._next, self._next + n))
        self._next += n
        waiting = self._forks[member] = self._loop.create_future()
        self._send(messages.FORK, (member, numbers))
        if not self.is_open and not waiting.done():
            waiting.set_exception(SandboxError(_SERVER_LOST))
        try:
            async with asyncio.timeout(_FORK_S):
                await asyncio.shield(waiting)
        except TimeoutError:
            self.close("its supervisor did not answer")
            raise SandboxError("the session could not be forked in time") from None
        except asyncio.CancelledError:
            waiting.add_done_callback(lambda task: self._drop_copies(task, numbers))
            raise
        return numbers

    def _drop_copies(self, made: asyncio.Future[None], numbers: list[int]) -> None:
        """Copies whose caller has gone."""
        if not made.cancelled() and made.exception() is None:
            for number in numbers:
                self.end(number)

    def end(self, member: int) -> None:
        """End a member, and with the last one the slot."""
        self._members.pop(member, None)
        ended = self._cells.pop(member, None)
        if ended is not None and not ended.done():
            ended.set_exception(SandboxError("the session was closed"))
        if self._members:
            self._send(messages.CLOSE, (member,))
        else:
            self.close()


def _settle(waiting: asyncio.Future[CellOutcome] | None, outcome: CellOutcome) -> None:
    if waiting is not None and not waiting.done():
        with suppress(asyncio.InvalidStateError):
            waiting.set_result(outcome)
