"""The descriptors of one cell: its code on the way in, its output and its report on the way out."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from contextlib import suppress

from .capture import Capture
from .launch import memory_file

_READ_BYTES = 65_536
_LENGTH_BYTES = 8
_READS_LEFT = 64  # more than a pipe or a socket can hold; a background process may write without end
MOST_REPORT_BYTES = 80 << 20
"""More than 32 MiB of files and some figures, in base64."""


class CellStreams:
    """Made for one cell, used once."""

    def __init__(self, asked: bytes, stdin: bytes | None, stdout: Capture, stderr: Capture) -> None:
        """`asked` is the block that the head reads."""
        self._loop = asyncio.get_running_loop()
        self._unsent = memoryview(asked)
        self._stdin = stdin
        self._captures = (stdout, stderr)
        self._job = -1
        self._pipes: dict[int, Capture | None] = {}
        self._report = bytearray()
        self._forget: Callable[[CellStreams], None] | None = None

    def start(self) -> tuple[int, ...]:
        """Open them; returns the descriptors for the head, which the caller is to close.

        Raises:
            OSError: out of descriptors or memory.
        """
        passed: list[int] = []
        try:
            self._open(passed)
        except OSError:
            for fd in passed:
                os.close(fd)
            self.close()
            raise
        return tuple(passed)

    def _open(self, passed: list[int]) -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        passed.append(theirs.detach())
        self._job = ours.detach()
        for capture in self._captures:
            read, write = os.pipe()
            os.set_blocking(read, False)
            self._pipes[read] = capture
            passed.append(write)
            self._loop.add_reader(read, self._read, read)
        if self._stdin is not None:
            passed.append(memory_file(self._stdin))
        self._loop.add_reader(self._job, self._collect)
        self._write()
        if self._unsent:
            self._loop.add_writer(self._job, self._write)

    @property
    def report(self) -> bytes:
        """What the head reported, or nothing if it did not, or not all of it."""
        length = int.from_bytes(self._report[:_LENGTH_BYTES], "little")
        return bytes(self._report[_LENGTH_BYTES:]) if length == len(self._report) - _LENGTH_BYTES else b""

    def _write(self) -> None:
        try:
            while self._unsent:
                self._unsent = self._unsent[os.write(self._job, self._unsent) :]
        except BlockingIOError:
            return
        except OSError:  # the head is gone, which init reports
            self._unsent = self._unsent[:0]
        self._loop.remove_writer(self._job)

    def _read(self, fd: int) -> bool:
        """Read once; says whether there was something."""
        try:
            data = os.read(fd, _READ_BYTES)
        except BlockingIOError:
            return False
        if not data:
            self._close_pipe(fd)
            return False
        capture = self._pipes[fd]
        if capture is not None:
            capture.data_received(data)
        return True

    def _collect(self) -> bool:
        try:
            data = os.read(self._job, _READ_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data or len(self._report) > MOST_REPORT_BYTES:
            self._loop.remove_reader(self._job)  # one that sends more waits for us until its time is over
            return False
        self._report += data
        return True

    def finish(self, forget: Callable[[CellStreams], None]) -> None:
        """Read what is left now that the cell has ended, and let go.

        What its background processes still write is read too, and dropped: they would else be ended by a signal.
        `forget` is called when the last of them is gone.
        """
        for _ in range(_READS_LEFT):
            if self._job < 0 or not self._collect():
                break
        self._close_job()
        self._forget = forget
        for fd in list(self._pipes):
            for _ in range(_READS_LEFT):
                if not self._read(fd):
                    break
            if fd in self._pipes:
                self._pipes[fd] = None
        self._end_if_done()

    def _close_job(self) -> None:
        if self._job >= 0:
            self._loop.remove_reader(self._job)
            self._loop.remove_writer(self._job)
            os.close(self._job)
            self._job = -1

    def _close_pipe(self, fd: int) -> None:
        self._loop.remove_reader(fd)
        del self._pipes[fd]
        os.close(fd)
        self._end_if_done()

    def _end_if_done(self) -> None:
        if not self._pipes and self._forget is not None:
            forget, self._forget = self._forget, None
            forget(self)

    def close(self) -> None:
        self._close_job()
        for fd in list(self._pipes):
            with suppress(OSError):
                self._close_pipe(fd)
