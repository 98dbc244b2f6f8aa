"""Build an index: passages in batches, each a commit, from which a build that was killed goes on."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ... import __version__
from ...schemas.errors import ConfigError
from ..bm25 import Bm25Index, readable
from ..bm25_text import ANALYZER, build_analyzer, build_schema, document_of, import_tantivy
from ..passages import Passage
from . import journal
from .corpus_files import CorpusFile, corpus_files
from .corpus_records import BadRecordError, RecordReader
from .file_checks import described
from .journal import Journal, Position
from .lock import LOCK, sole_builder
from .manifest import (
    BAD_LINES,
    BM25,
    BUILDING,
    DENSE,
    MANIFEST,
    PROGRESS,
    Manifest,
    let_others_read,
    write_manifest,
)

_OURS = frozenset({MANIFEST, BUILDING, PROGRESS, BAD_LINES, BM25, DENSE, LOCK})
_CHECK_BAD_FROM = 10_000
_BATCH_BYTES = 64 * 2**20
_SWEEPER_HEAP_BYTES = 16 * 2**20
_REPORT_EVERY = 1024
_THREAD_MB = 16


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """
    Attributes:
        corpus: files, folders and globs. out: the folder of the index.
        command: what a person types to go on, for messages.
        max_bad: the largest share of records that may be no passages.
        commit_every: passages in a commit; what a kill can cost. memory_mb, threads: of tantivy's writer.
        restart: throw away what is in `out`.
    """

    corpus: list[str]
    out: Path
    command: str
    max_bad: float = 0.01
    commit_every: int = 50_000
    memory_mb: int = 128
    threads: int = 1
    restart: bool = False


@dataclass(slots=True)
class BuildState:
    """How far a build is: `done_bytes` of `total_bytes` on the disk are read, `rows` passages found, `bad` left out."""

    total_bytes: int
    done_bytes: int
    rows: int
    bad: int


def build_index(options: BuildOptions, report: Callable[[BuildState], None]) -> Manifest:
    """Build the index, or go on with it. Records that are no passages are noted in `bad_lines.jsonl` and left out, and
    so is a passage whose id an earlier one has.

    Args:
        report: called at the start, now and then, and at the end.

    Raises:
        ConfigError: the corpus cannot be read or holds too much that is no passage, or `out` holds something else.
    """
    tantivy = import_tantivy()
    if options.memory_mb < _THREAD_MB * options.threads:
        raise ConfigError(f"--memory-mb: must be {_THREAD_MB} for each of --threads (got {options.memory_mb})")
    paths = corpus_files(options.corpus, options.out)
    corpus = [CorpusFile.of(path) for path in paths]
    with sole_builder(options.out), _on_disk(options.out):
        _take_over(options.out, options.restart)
        if (options.out / MANIFEST).exists():
            raise ConfigError(f"index {options.out}: is there already; --restart builds it again")
        if (options.out / BUILDING).exists():
            _check_same(journal.begun_corpus(options.out), corpus, options.out)
        else:
            journal.begin(options.out, corpus, options.command)
        build = _Build(tantivy, options, paths, corpus)
        position = build.run(report)
        changes = [change for file in corpus if (change := file.changed()) is not None]
        if changes:
            raise ConfigError(f"corpus: {changes[0]} since indexing began; begin again with --restart")
        let_others_read(options.out)
        manifest = Manifest(
            passages=position.rows,
            bad_records=position.bad,
            corpus=corpus,
            software={"rollbox": __version__, "tantivy": version("tantivy"), "python": sys.version.split()[0]},
            files=described(_finished_files(options.out / BM25)),
        )
        write_manifest(options.out, manifest)
        journal.end(options.out)
        return manifest


class _Build:
    def __init__(self, tantivy: Any, options: BuildOptions, paths: list[Path], corpus: list[CorpusFile]) -> None:
        self._tantivy = tantivy
        self._options = options
        self._paths = paths
        self._sizes = [file.size_bytes for file in corpus]
        self._index = self._opened(options.out / BM25)
        self._known = Bm25Index(self._index)
        self._batch: dict[str, Passage] = {}
        self._batch_bytes = 0
        self._at = journal.position_of(options.out, len(self._known))

    def _opened(self, folder: Path) -> Any:
        folder.mkdir(exist_ok=True)
        begun = (folder / "meta.json").exists()  # else it is written now, which a full disk can forbid
        with readable(f"index {folder.parent}") if begun else _writing(folder.parent):
            index = self._tantivy.Index(build_schema(self._tantivy), path=str(folder))
        index.register_tokenizer(ANALYZER, build_analyzer(self._tantivy, stop_words=False))
        return index

    def run(self, report: Callable[[BuildState], None]) -> Position:
        writer = self._index.writer(self._options.memory_mb << 20, self._options.threads)
        try:
            report(self._state(sum(self._sizes[: self._at.file])))
            with Journal(self._options.out, self._at) as notes:
                while self._at.file < len(self._paths):
                    for _ in self._read_file(notes, report):
                        self._commit(writer, notes)
                    self._at.file, self._at.number = self._at.file + 1, 0
                self._commit(writer, notes)
                self._check_bad(final=True)
        finally:
            # Also when it fails: whatever was committed stays, and the writer's threads end.
            with _writing(self._options.out):
                writer.wait_merging_threads()
        if not self._at.rows:
            raise ConfigError(f"corpus {', '.join(self._options.corpus)}: holds no passages")
        with _writing(self._options.out):
            sweeper = self._index.writer(_SWEEPER_HEAP_BYTES, 1)
            sweeper.garbage_collect_files()  # what was merged into other files
            sweeper.wait_merging_threads()
        report(self._state(sum(self._sizes)))
        return self._at

    def _read_file(self, notes: Journal, report: Callable[[BuildState], None]) -> Iterator[None]:
        """Fill batches from the file that is next; yields when one is full."""
        reader = RecordReader(self._paths[self._at.file])
        before = sum(self._sizes[: self._at.file])
        for record in reader.passages(skip=self._at.number):
            reason = str(record) if isinstance(record, BadRecordError) else self._take(record)
            self._at.number = reader.number
            if reason is not None:
                self._at.bad += 1
                self._at.bad_bytes = notes.add_bad(str(reader.path), reader.number, reason)
            if reader.number % _REPORT_EVERY == 0:
                report(self._state(before + reader.done_bytes))
                self._check_bad(final=False)
            if len(self._batch) >= self._options.commit_every or self._batch_bytes >= _BATCH_BYTES:
                yield

    def _state(self, done_bytes: int) -> BuildState:
        return BuildState(sum(self._sizes), done_bytes, self._at.rows + len(self._batch), self._at.bad)

    def _take(self, passage: Passage) -> str | None:
        """Put a passage into the batch, or say why not."""
        if passage.id in self._batch or self._known.has_id(passage.id):
            return f"id: {passage.id!r} is the id of an earlier passage too"
        self._batch[passage.id] = passage
        self._batch_bytes += len(passage.title) + len(passage.text) + len(passage.raw or "")
        return None

    def _commit(self, writer: Any, notes: Journal) -> None:
        with _writing(self._options.out):
            for row, passage in enumerate(self._batch.values(), start=self._at.rows):
                writer.add_document(document_of(self._tantivy, passage, row))
            self._at.rows += len(self._batch)
            notes.commit(self._at)
            writer.commit()
        self._batch, self._batch_bytes = {}, 0
        self._known = Bm25Index(self._index)

    def _check_bad(self, *, final: bool) -> None:
        """
        Raises:
            ConfigError: too many records were no passages. What was committed stays.
        """
        bad, seen = self._at.bad, self._at.bad + self._at.rows + len(self._batch)
        if (final or seen >= _CHECK_BAD_FROM) and bad > self._options.max_bad * seen:
            raise ConfigError(
                f"corpus: {bad} of {seen} records are no passages, more than --max-bad {self._options.max_bad:g} "
                f"allows; {self._options.out / BAD_LINES} says which and why. A larger --max-bad goes on without them"
            )


@contextmanager
def _writing(out: Path) -> Iterator[None]:
    """
    Raises:
        ConfigError: the disk is full, or the folder cannot be written. tantivy says so by a ValueError.
    """
    try:
        with _on_disk(out):
            yield
    except ValueError as error:
        raise _not_written(out, error) from error


@contextmanager
def _on_disk(out: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _not_written(out, error) from error


def _not_written(out: Path, error: Exception) -> ConfigError:
    fix = "make room and start the same command again: it goes on from the last commit"
    return ConfigError(f"index {out}: cannot be written: {error}; {fix}")


def _take_over(out: Path, restart: bool) -> None:
    """
    Raises:
        ConfigError: the folder has something in it that is no index's.
    """
    others = sorted(name for name in os.listdir(out) if name.removesuffix(".new") not in _OURS)
    if others:
        raise ConfigError(f"--out {out}: has something else in it ({others[0]}); give an empty folder or a new one")
    if restart:
        _clear(out)


def _finished_files(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if not path.name.endswith(".lock")]


def _clear(out: Path) -> None:
    # The manifest first: what is left by a kill must not look like an index.
    for path in sorted(out.iterdir(), key=lambda path: path.name != MANIFEST):
        if path.name == LOCK:
            continue
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def _check_same(begun: list[CorpusFile], corpus: list[CorpusFile], out: Path) -> None:
    had, have = {file.path: file for file in begun}, {file.path: file for file in corpus}
    for path, file in have.items():
        if path not in had:
            raise ConfigError(f"index {out}: was begun without {path}; name the same corpus, or begin with --restart")
        if file.fingerprint != had[path].fingerprint:
            raise ConfigError(f"index {out}: {path} has changed since it was begun; begin again with --restart")
    if list(had) != list(have):
        missing = [path for path in had if path not in have] or ["another order of files"]
        raise ConfigError(f"index {out}: was begun with {missing[0]}; name the same corpus, or begin with --restart")
