"""The lines of a file that may still grow: whole lines only, each with its place in the file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

MAX_LINE_BYTES = 64 << 20
_HEAD_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the file.

    Attributes:
        number: from 1, empty lines counted. offset, length: bytes; the newline is left out.
        data: None when the line is longer than `MAX_LINE_BYTES`.
        ended: False for the last line of a file when no newline follows it: it may be half written.
    """

    number: int
    offset: int
    length: int
    data: bytes | None
    ended: bool = True


class GrowingFile:
    """Reads on from where it stopped.

    Attributes:
        offset: bytes that were read and taken. size: bytes of the file when last looked at.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.offset = 0
        self.size = 0
        self._number = 0
        self._owed_newline = False
        self._identity: tuple[int, int] | None = None
        self._head = b""

    def was_replaced(self) -> bool:
        """Whether another run's file lies there now: another inode, shorter, or with another beginning.

        Raises:
            OSError: the file cannot be read.
        """
        with self.path.open("rb") as file:
            status = os.fstat(file.fileno())
            known = self._identity in (None, (status.st_dev, status.st_ino)) and status.st_size >= self.offset
            return not (known and file.read(len(self._head)) == self._head)

    def lines(self) -> Iterator[Line]:
        """Yield the lines after `offset`. A line is taken when the next one is asked for, or `take` is called.

        A last line without a newline is yielded too, with `ended` False; it is taken only by `take`.

        Raises:
            OSError: the file cannot be read.
        """
        with self.path.open("rb") as file:
            status = os.fstat(file.fileno())
            self._identity, self.size = (status.st_dev, status.st_ino), status.st_size
            self._skip_owed_newline(file)
            file.seek(self.offset)
            while (line := self._next(file)) is not None:
                yield line
                if not line.ended:
                    return
                self.take(line)

    def take(self, line: Line) -> None:
        """Count the line as read."""
        if line.offset < self.offset:
            return
        if len(self._head) < _HEAD_BYTES:
            self._head += ((line.data or b"") + b"\n" * line.ended)[: _HEAD_BYTES - len(self._head)]
        self.offset = line.offset + line.length + line.ended
        self.size = max(self.size, self.offset)
        self._number = line.number
        self._owed_newline = not line.ended

    def _skip_owed_newline(self, file: BinaryIO) -> None:
        """The newline of a line that was taken before it came."""
        if self._owed_newline:
            file.seek(self.offset)
            if file.read(1) == b"\n":
                self.offset += 1
                self._owed_newline = False

    def _next(self, file: BinaryIO) -> Line | None:
        offset = self.offset
        data = file.readline(MAX_LINE_BYTES + 1)
        if not data:
            return None
        ended = data.endswith(b"\n")
        length = len(data) - ended
        kept: bytes | None = data[:length]
        if length > MAX_LINE_BYTES:
            kept = None
            while not ended and (more := file.readline(MAX_LINE_BYTES)):
                ended = more.endswith(b"\n")
                length += len(more) - ended
        return Line(self._number + 1, offset, length, kept, ended)


def read_bytes(path: Path, offset: int, length: int) -> bytes:
    """The bytes of a line that is known already; fewer when the file has become shorter.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(length)
