"""The server's end of a slot: gives its ready child a job, drains its output, learns how it ended."""

from __future__ import annotations

import asyncio
import errno
import marshal
import os
import socket
from collections.abc import Callable
from contextlib import suppress

from ..schemas.errors import SandboxError
from .capture import Capture
from .failures import explained
from .jail import messages
from .jail.frames import Failure, Outcome, SlotOutcome
from .job import block

_READ_BYTES = 65_536
_DEATH_GRACE_S = 5.0
_SETUP_GRACE_S = 30.0
_CHILD_FDS = 3
"""Of a ready child: its job's socket, and its output pipes."""
_MOST_DOORS = 32
_UNWATCHED_S = 0.04
"""How long limits other than the kernel's are not looked at. Most programs end sooner, and are spared the watch."""

OnDoors = Callable[[list[socket.socket]], None]


class Slot:
    """One slot. Its events are calls of the functions given; it is used by one run at a time."""

    def __init__(
        self,
        channel: socket.socket,
        on_ready: Callable[[Slot], None],
        on_lost: Callable[[Slot, Failure | None], None],
    ) -> None:
        """Takes over `channel`. `on_lost` comes once, with what failed if the slot said so."""
        self._loop = asyncio.get_running_loop()
        self._channel = channel
        self._on_ready = on_ready
        self._on_lost = on_lost
        self._child: list[int] = []
        self._number = 0
        self._ended: asyncio.Future[SlotOutcome] | None = None
        self._run: _Run | None = None
        self._failure: Failure | None = None
        self._open = True
        channel.setblocking(False)
        self._loop.add_reader(channel.fileno(), self._readable)

    def _readable(self) -> None:
        try:
            kind, value, fds = messages.receive(self._channel)
        except BlockingIOError:
            return
        except OSError:
            kind, value, fds = b"", None, []
        if kind == messages.READY:
            self._child, self._number = fds, value
            if len(fds) != _CHILD_FDS:
                # We are out of descriptors, and the kernel has dropped those that found no place.
                text = os.strerror(errno.EMFILE)
                self._failure = {"step": "descriptors of a ready child", "errno": errno.EMFILE, "message": text}
                self.close()
            elif self._ended is None:  # else the run before has not been wound up yet, and will say so itself
                self._on_ready(self)
        elif kind == messages.FETCHING:
            if self._run is not None:
                self._run.send_names()
        elif not kind:
            self.close()
        elif self._ended is None:
            # No run has begun: it is the slot that failed.
            self._failure = value if kind == messages.FAILED else None
            self.close()
        elif not self._ended.done():
            if kind == messages.ENDED:
                self._ended.set_result(value)
            else:
                self._ended.set_exception(explained(value))
                if "field" not in value:
                    self.close()  # it is the slot that failed, and might again

    @property
    def is_open(self) -> bool:
        return self._open

    def close(self) -> None:
        """Give the slot up: when its channel closes, its init ends, and everything in it. Safe to call again."""
        if not self._open:
            return
        self._open = False
        self._loop.remove_reader(self._channel.fileno())
        self._channel.close()
        for fd in self._child:
            os.close(fd)
        self._child = []
        if self._ended is not None and not self._ended.done():
            self._ended.set_exception(SandboxError("the slot of this run was lost"))
        self._on_lost(self, self._failure)

    def end_run(self) -> None:
        """Ask init to end the program and report."""
        self._ask(messages.END_RUN)

    def _ask(self, kind: bytes) -> None:
        if self._open:
            with suppress(OSError):
                messages.send(self._channel, kind, self._number)

    async def run(
        self,
        job: bytes,
        *,
        fetch_files: list[str],
        stdout: Capture,
        stderr: Capture,
        wall_s: float,
        on_doors: OnDoors | None = None,
    ) -> Outcome:
        """Run one job. When this returns or raises, its processes are gone, or the slot is given up.

        Args:
            on_doors: gets the listening sockets of a job that has doors, and owns them.

        Raises:
            ToolError: (kind `arguments`) the request is at fault.
            SandboxError: the slot was lost, or did not report long after `wall_s` seconds.
        """
        child, self._child = self._child, []
        self._ended = self._loop.create_future()
        try:
            run = self._run = _Run(self._loop, child, job, (stdout, stderr), fetch_files, on_doors)
        except OSError:
            self.close()  # in what state its child is, nobody knows
            raise
        watch = self._loop.call_later(min(wall_s, _UNWATCHED_S), self._ask, messages.WATCH)
        patience = self._loop.call_later(wall_s + _SETUP_GRACE_S, self.close)
        try:
            outcome = await asyncio.shield(self._ended)  # a cancelled caller must still learn of the end
            files, unfetched = await run.finished()
        except asyncio.CancelledError:
            await self._abandon()
            raise
        finally:
            watch.cancel()
            patience.cancel()
            run.close()
            self._run = self._ended = None
            if self._child:
                self._on_ready(self)
        return Outcome(**outcome, files=files, unfetched=unfetched)

    async def _abandon(self) -> None:
        """End the run of a caller that has gone; the slot must be empty before another gets it."""
        ended = self._ended
        if ended is None or ended.done():
            return
        self.end_run()
        try:
            await asyncio.wait({ended}, timeout=_DEATH_GRACE_S)
        finally:
            if ended.done():
                ended.exception()  # it has been looked at
            else:
                ended.cancel()
                self.close()


class _Run:
    """The descriptors of one run: its job's socket and its two output pipes."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        fds: list[int],
        job: bytes,
        captures: tuple[Capture, Capture],
        fetch_files: list[str],
        on_doors: OnDoors | None,
    ) -> None:
        self._loop = loop
        self._fds = fds
        self._job_fd = fds[0]
        self._unsent = memoryview(job)
        self._captures = captures
        self._fetch_files = fetch_files
        self._files = bytearray()
        self._files_ended: asyncio.Future[None] | None = loop.create_future() if fetch_files else None
        for fd in fds:
            os.set_blocking(fd, False)
        self._write()
        if self._unsent:
            loop.add_writer(self._job_fd, self._write)
        self._on_doors = on_doors
        if on_doors is not None:
            loop.add_reader(self._job_fd, self._take_doors)
        elif fetch_files:
            loop.add_reader(self._job_fd, self._collect)
        for fd, capture in zip(fds[1:], captures, strict=True):
            loop.add_reader(fd, self._read, fd, capture)

    def send_names(self) -> None:
        """Tell the slot which files to send."""
        self._unsent = memoryview(block(self._fetch_files))
        self._write()
        if self._unsent:
            self._loop.add_writer(self._job_fd, self._write)

    def _write(self) -> None:
        try:
            while self._unsent:
                self._unsent = self._unsent[os.write(self._job_fd, self._unsent) :]
        except BlockingIOError:
            return
        except OSError:  # the child is gone, which its init reports
            self._unsent = self._unsent[:0]
        self._loop.remove_writer(self._job_fd)

    def _read(self, fd: int, capture: Capture) -> None:
        try:
            data = os.read(fd, _READ_BYTES)
        except BlockingIOError:
            return
        if data:
            capture.data_received(data)
        else:
            self._loop.remove_reader(fd)

    def _take_doors(self) -> None:
        with socket.socket(fileno=os.dup(self._job_fd)) as job:
            try:
                _, fds, _, _ = socket.recv_fds(job, 1, _MOST_DOORS)
            except OSError:
                fds = []
        self._loop.remove_reader(self._job_fd)
        if fds and self._on_doors is not None:
            self._on_doors([socket.socket(fileno=fd) for fd in fds])
        if self._files_ended is not None:
            self._loop.add_reader(self._job_fd, self._collect)

    def _collect(self) -> None:
        try:
            data = os.read(self._job_fd, _READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._files += data
        if not data:
            self._loop.remove_reader(self._job_fd)
            if self._files_ended is not None and not self._files_ended.done():
                self._files_ended.set_result(None)

    async def finished(self) -> tuple[dict[str, str], dict[str, int]]:
        """Read what is left, now that nobody writes any more: the fetched files, and the sizes of those left out.

        Raises:
            SandboxError: the files did not arrive.
        """
        for fd, capture in zip(self._fds[1:], self._captures, strict=True):
            with suppress(BlockingIOError):
                while data := os.read(fd, _READ_BYTES):
                    capture.data_received(data)
        if self._files_ended is None:
            return {}, {}
        await self._files_ended
        try:
            fetched: tuple[dict[str, str], dict[str, int]] = marshal.loads(self._files)  # noqa: S302 - from our process
        except (EOFError, ValueError, TypeError):
            raise SandboxError("the files of the run could not be fetched") from None
        return fetched

    def close(self) -> None:
        self._loop.remove_writer(self._job_fd)
        for fd in self._fds:
            self._loop.remove_reader(fd)
            os.close(fd)
