"""The journal of a build: how far into the corpus each commit came, so that a build that was killed can go on.

A line is written before each commit. What tantivy holds after a crash says which commit was the last: rows are numbered
from 0 without gaps, so their number is found in one of the lines.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

from ...schemas.errors import ConfigError
from .corpus_files import CorpusFile
from .manifest import BAD_LINES, BUILDING, PROGRESS, sync_folder, write_at_once


@dataclass(slots=True)
class Position:
    """Attributes:
    rows: passages indexed. file, number: the file of the corpus by its place in the list, and its records done.
    bad: records left out. bad_bytes: size of `bad_lines.jsonl`.
    """

    rows: int = 0
    file: int = 0
    number: int = 0
    bad: int = 0
    bad_bytes: int = 0


class Journal:
    """A context manager: the files `progress.jsonl` and `bad_lines.jsonl` of a build."""

    def __init__(self, folder: Path, position: Position) -> None:
        """Bad lines that were written after `position` are forgotten; they will be met again."""
        self._folder = folder
        self._bad_bytes = position.bad_bytes
        self._progress: BinaryIO
        self._bad_lines: BinaryIO

    def __enter__(self) -> Journal:
        self._progress = (self._folder / PROGRESS).open("ab")
        self._progress.write(b"\n")  # a crash may have cut the last line off
        self._bad_lines = (self._folder / BAD_LINES).open("ab")
        self._bad_lines.truncate(self._bad_bytes)
        sync_folder(self._folder)
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.close()
        self._bad_lines.close()

    def add_bad(self, file: str, number: int, reason: str) -> int:
        """Note a record that is left out; returns the size of the notes in bytes."""
        line = json.dumps({"file": file, "line": number, "reason": reason}, ensure_ascii=False)
        self._bad_bytes += self._bad_lines.write(line.encode(errors="replace") + b"\n")
        return self._bad_bytes

    def commit(self, position: Position) -> None:
        """Note where the next commit will be."""
        self._progress.write(json.dumps(asdict(position)).encode() + b"\n")
        for file in (self._bad_lines, self._progress):
            file.flush()
            os.fsync(file.fileno())


def begin(folder: Path, corpus: list[CorpusFile], command: str) -> None:
    """Note what is being built."""
    content: dict[str, Any] = {"command": command, "corpus": [file.model_dump() for file in corpus]}
    write_at_once(folder / BUILDING, json.dumps(content, indent=1).encode())


def begun_corpus(folder: Path) -> list[CorpusFile]:
    """What a build was begun with.

    Raises:
        ConfigError: the note is damaged.
    """
    try:
        return [CorpusFile(**file) for file in json.loads((folder / BUILDING).read_bytes())["corpus"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"index {folder}: {BUILDING} is damaged: {error}; begin again with --restart") from error


def position_of(folder: Path, rows: int) -> Position:
    """Where the commit was that left `rows` passages.

    Raises:
        ConfigError: the journal does not know it.
    """
    found = Position() if rows == 0 else None
    try:
        lines = (folder / PROGRESS).read_bytes().splitlines()
    except FileNotFoundError:
        lines = []
    for line in lines:
        try:
            position = Position(**json.loads(line))
        except (ValueError, TypeError):
            continue  # cut off by the crash
        if position.rows == rows:
            found = position
    if found is None:
        raise ConfigError(f"index {folder}: {PROGRESS} knows nothing of {rows} passages; begin again with --restart")
    return found


def end(folder: Path) -> None:
    """Forget the build; the manifest has been written."""
    for name in (PROGRESS, BUILDING):
        (folder / name).unlink(missing_ok=True)
    sync_folder(folder)
