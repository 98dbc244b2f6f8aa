"""The index of a run's trajectories: a row per line in a temporary SQLite database, kept up with the files' growth.

Memory stays bounded whatever the files' size: one line at a time is in memory, the rows and the texts to search in are
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
CREATE TABLE rows (id INTEGER PRIMARY KEY, {ROW_COLUMNS.removeprefix("id, ")});
CREATE INDEX rows_sample ON rows (sample_id);
CREATE TABLE calls (id INTEGER, tool TEXT, error_kind TEXT, number INTEGER);
CREATE INDEX calls_id ON calls (id);
CREATE TABLE texts (id INTEGER PRIMARY KEY, text TEXT);
"""
# Long enough that a page is seldom shown before a file of usual size has been read; short enough to wait for.
_FIRST_LOOK_S = 1.0
_STEP_S = 0.25


@dataclass(frozen=True, slots=True)
class ReadState:
    """How far the files have been read, in bytes.

    Attributes:
        half_bytes: bytes of last lines that are not finished yet.
        problem: why a file cannot be read now; None when all can.
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
        paths: the run's files, by their number in `Row.file`. The first is `trajectories.jsonl`; others may be missing.
            They may still be written to, or be replaced by another run's.
    """

    def __init__(self, *paths: Path) -> None:
        self.paths = paths
        self.state = ReadState()
        self._files = [GrowingFile(path) for path in paths]
        self._half_bytes = [0] * len(paths)
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
        """Read what was added to the files. After `wait_s` seconds the reading goes on behind this call's back."""
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
        """Read for a moment. Returns whether the end of every file was reached, or cannot be reached now."""
        until = time.monotonic() + _STEP_S
        ended, problem = True, None
        for number in range(len(self._files)):
            try:
                ended = self._read_file(number, until)
            except (OSError, sqlite3.OperationalError) as error:
                # The folder may be gone, or the disk full: the page says so, and shows what it has.
                problem = str(error)
            if not ended:
                break
        read, size = (sum(getattr(file, name) for file in self._files) for name in ("offset", "size"))
        self.state = ReadState(read, size, sum(self._half_bytes), problem)
        return ended

    def _read_file(self, number: int, until: float) -> bool:
        """Read on in one file, in one transaction. Returns whether its end was reached."""
        if number > 0 and not self.paths[number].exists():
            if self._files[number].size:
                self._forget(number)
            return True
        if self._files[number].was_replaced():
            self._forget(number)
        before = copy(self._files[number])
        try:
            with self._transaction():
                ended, self._half_bytes[number] = self._store_lines(number, until)
        except BaseException:
            self._files[number] = before
            raise
        return ended

    def _store_lines(self, number: int, until: float) -> tuple[bool, int]:
        file = self._files[number]
        for line in file.lines():
            if line.ended:
                self._store(number, line)
            elif not self._store_whole(number, line):
                return True, line.length
            if time.monotonic() > until:
                file.take(line)
                return False, 0
        return True, 0

    def _store(self, number: int, line: Line) -> None:
        if line.data is None or line.data.strip():
            self._insert(read_entry(line, number))

    def _store_whole(self, number: int, line: Line) -> bool:
        """Store a last line without newline if it is whole: a half-written object is never valid JSON."""
        entry = read_entry(line, number)
        if entry.row.problem is not None:
            return False
        self._insert(entry)
        self._files[number].take(line)
        return True

    def _insert(self, entry: Entry) -> None:
        key = entry.row.id
        places = ", ".join("?" * len(fields(Row)))
        self._writer.execute(f"INSERT INTO rows ({ROW_COLUMNS}) VALUES ({places})", astuple(entry.row))  # noqa: S608
        self._writer.executemany("INSERT INTO calls VALUES (?, ?, ?, ?)", [(key, *call) for call in entry.calls])
        self._writer.execute("INSERT INTO texts VALUES (?, ?)", (key, entry.text))

    def _forget(self, number: int) -> None:
        with self._transaction():
            for table in ("calls", "texts", "rows"):
                sql = f"DELETE FROM {table} WHERE id IN (SELECT id FROM rows WHERE file = ?)"  # noqa: S608
                self._writer.execute(sql, [number])
        self._files[number] = GrowingFile(self.paths[number])
        self._half_bytes[number] = 0

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._writer.execute("BEGIN")
        try:
            yield
        except BaseException:
            self._writer.execute("ROLLBACK")
            raise
        self._writer.execute("COMMIT")
