"""The index of a trajectories file: a row per line in a temporary SQLite database, kept up with the file's growth.

Memory stays bounded whatever the file's size: one line at a time is in memory, the rows and the texts to search in are
on disk, and only the trajectories of the page that is shown are parsed again.
"""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import Self

from .growing_file import GrowingFile, Line
from .rows import Entry, Row, read_entry

ROW_COLUMNS = ", ".join(field.name for field in fields(Row))
_SCHEMA = f"""
CREATE TABLE rows (line INTEGER PRIMARY KEY, {ROW_COLUMNS.removeprefix("line, ")});
CREATE INDEX rows_sample ON rows (sample_id);
CREATE TABLE calls (line INTEGER, tool TEXT, error_kind TEXT, number INTEGER);
CREATE INDEX calls_line ON calls (line);
CREATE TABLE texts (line INTEGER PRIMARY KEY, text TEXT);
"""
# Long enough that a page is seldom shown before a file of usual size has been read; short enough to wait for.
_FIRST_LOOK_S = 1.0
_STEP_S = 0.25


@dataclass(frozen=True, slots=True)
class ReadState:
    """How far the file has been read, in bytes.

    Attributes:
        half_bytes: bytes of a last line that is not finished yet.
        problem: why the file cannot be read now; None when it can.
    """

    read_bytes: int = 0
    file_bytes: int = 0
    half_bytes: int = 0
    problem: str | None = None

    @property
    def behind(self) -> bool:
        """Whether whole lines are still waiting to be read."""
        return self.problem is None and self.read_bytes + self.half_bytes < self.file_bytes


class TrajectoryIndex:
    """An async context manager; entering it starts to read.

    Args:
        path: `trajectories.jsonl`. It may still be written to, or be replaced by another run's.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.state = ReadState()
        self._file = GrowingFile(path)
        self._reading = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = False

    async def __aenter__(self) -> Self:
        self._directory = tempfile.TemporaryDirectory(prefix="rollbox-view-")
        self._database = Path(self._directory.name) / "index.sqlite"
        self._writer = sqlite3.connect(self._database, check_same_thread=False, isolation_level=None)
        self._writer.executescript("PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF;" + _SCHEMA)
        self._start_reading()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._stopping = True
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._writer.close()
        self._directory.cleanup()

    async def refresh(self, wait_s: float = _FIRST_LOOK_S) -> None:
        """Read what was added to the file. After `wait_s` seconds the reading goes on behind this call's back."""
        task = self._start_reading()
        done, _ = await asyncio.wait({task}, timeout=wait_s)
        for ended in done:
            ended.result()

    @contextmanager
    def connection(self) -> Iterator[sqlite3.Connection]:
        """A connection that only reads, and sees one state of the index throughout. For any thread."""
        connection = sqlite3.connect(f"file:{self._database}?mode=ro", uri=True, isolation_level=None)
        try:
            connection.execute("PRAGMA temp_store = MEMORY")
            connection.execute("BEGIN")
            yield connection
        finally:
            connection.close()

    def _start_reading(self) -> asyncio.Task[None]:
        task = asyncio.create_task(self._catch_up())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _catch_up(self) -> None:
        async with self._reading:
            while not self._stopping and not await asyncio.to_thread(self._read_some):
                pass

    def _read_some(self) -> bool:
        """Read for a moment, in one transaction. Returns whether the end of the file was reached."""
        before = copy(self._file)
        try:
            if self._file.was_replaced():
                self._forget()
                before = copy(self._file)
            with self._transaction():
                ended, half_bytes = self._store_lines(time.monotonic() + _STEP_S)
        except (OSError, sqlite3.OperationalError) as error:
            # The folder may be gone, or the disk full: the page says so, and shows what it has.
            self._file = before
            self.state = ReadState(before.offset, before.size, problem=str(error))
            return True
        self.state = ReadState(self._file.offset, self._file.size, half_bytes)
        return ended

    def _store_lines(self, until: float) -> tuple[bool, int]:
        for line in self._file.lines():
            if line.ended:
                self._store(line)
            elif not self._store_whole(line):
                return True, line.length
            if time.monotonic() > until:
                self._file.take(line)
                return False, 0
        return True, 0

    def _store(self, line: Line) -> None:
        if line.data is None or line.data.strip():
            self._insert(read_entry(line))

    def _store_whole(self, line: Line) -> bool:
        """Store a last line without newline if it is whole: a half-written object is never valid JSON."""
        entry = read_entry(line)
        if entry.row.problem is not None:
            return False
        self._insert(entry)
        self._file.take(line)
        return True

    def _insert(self, entry: Entry) -> None:
        line = entry.row.line
        places = ", ".join("?" * len(fields(Row)))
        self._writer.execute(f"INSERT INTO rows ({ROW_COLUMNS}) VALUES ({places})", astuple(entry.row))  # noqa: S608
        self._writer.executemany("INSERT INTO calls VALUES (?, ?, ?, ?)", [(line, *call) for call in entry.calls])
        self._writer.execute("INSERT INTO texts VALUES (?, ?)", (line, entry.text))

    def _forget(self) -> None:
        with self._transaction():
            for table in ("rows", "calls", "texts"):
                self._writer.execute(f"DELETE FROM {table}")  # noqa: S608
        self._file = GrowingFile(self.path)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._writer.execute("BEGIN")
        try:
            yield
        except BaseException:
            self._writer.execute("ROLLBACK")
            raise
        self._writer.execute("COMMIT")
