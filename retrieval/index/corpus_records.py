"""Records of a corpus file, one at a time: JSON lines, a JSON array, or Parquet; the text forms also gzip or zstd."""

from __future__ import annotations

import gzip
import io
import json
import reprlib
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

from ...schemas.errors import ConfigError
from ..passages import Passage, storable

LINE_SUFFIXES = (".jsonl", ".ndjson", ".json")
COMPRESSIONS = {"": "", ".gz": "gzip", ".zst": "zstd"}
SUFFIXES = (*(line + packed for line in LINE_SUFFIXES for packed in COMPRESSIONS), ".parquet")
_MAX_LINE_BYTES = 16 * 2**20
# tantivy indexes no longer term: of such an id the second passage would not be seen to be one too many.
_MAX_ID_BYTES = 65_530
_PARQUET_ROWS = 1000
_COLUMNS = ("id", "contents", "title", "text")
_BOM = b"\xef\xbb\xbf"
_FIX = "the file is damaged or still being written; mend it or leave it out"


class BadRecordError(Exception):
    """One record is no passage. The text says why."""


class RecordReader:
    """The records of one file.

    Attributes:
        number: of the record read last: its line, its place in the array, or its row, from 1.
        done_bytes: how far into the file reading has come, for progress.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.number = 0
        self.done_bytes = 0
        self._suffix = path.suffix if path.suffix in (".gz", ".zst") else ""
        self._file: BinaryIO | None = None

    def records(self, skip: int = 0) -> Iterator[Any | BadRecordError]:
        """The records after the first `skip`, as decoded JSON or as the error that it is none. Blank lines are no
        records, but counted.

        Raises:
            ConfigError: the file cannot be read on; names file and record.
        """
        try:
            if self.path.suffix == ".parquet":
                yield from self._rows(skip)
            else:
                with self.path.open("rb") as self._file:
                    yield from self._texts(self._opened(self._file), skip)
        except (OSError, EOFError, zlib.error) as error:
            reason = getattr(error, "strerror", None) or str(error)
            where = f"cannot be read after {self.number} records" if self.number else "cannot be read"
            fix = f"; {_FIX}" if self.number or isinstance(error, EOFError | gzip.BadGzipFile | zlib.error) else ""
            raise ConfigError(f"corpus {self.path}: {where}: {reason}{fix}") from error

    def passages(self, skip: int = 0) -> Iterator[Passage | BadRecordError]:
        """As `records`, as passages."""
        for record in self.records(skip):
            try:
                yield record if isinstance(record, BadRecordError) else passage_of_record(record)
            except BadRecordError as error:
                yield error

    def _opened(self, file: BinaryIO) -> io.BufferedReader:
        if self._suffix == ".gz":
            return cast(io.BufferedReader, gzip.open(file))
        if self._suffix == ".zst":
            return io.BufferedReader(import_pyarrow("zstd").CompressedInputStream(file, "zstd"))
        return cast(io.BufferedReader, file)

    def _texts(self, stream: io.BufferedReader, skip: int) -> Iterator[Any | BadRecordError]:
        is_array = ".json" in self.path.suffixes[-2:] and stream.peek(64).removeprefix(_BOM).lstrip()[:1] == b"["
        for record in self._items(stream) if is_array else self._lines(stream, skip):
            if self.number > skip:
                yield record

    def _lines(self, stream: io.BufferedReader, skip: int) -> Iterator[Any | BadRecordError]:
        while line := stream.readline(_MAX_LINE_BYTES + 1):
            self.number += 1
            if self._file is not None and self.number % 256 == 0:
                self.done_bytes = self._file.tell()
            if len(line) > _MAX_LINE_BYTES:
                while not line.endswith(b"\n") and (line := stream.readline(_MAX_LINE_BYTES)):
                    pass
                yield BadRecordError(f"the line is longer than {_MAX_LINE_BYTES} bytes")
            elif self.number > skip and line.strip():
                yield _decoded(line.removeprefix(_BOM) if self.number == 1 else line)

    def _items(self, stream: io.BufferedReader) -> Iterator[Any | BadRecordError]:
        try:
            import ijson
        except ImportError as error:
            raise ConfigError("a JSON array needs ijson: pip install 'rollbox[search]'") from error
        if stream.peek(3).startswith(_BOM):
            stream.read(len(_BOM))
        try:
            for item in ijson.items(stream, "item", use_float=True):
                self.number += 1
                if self._file is not None:
                    self.done_bytes = self._file.tell()
                yield item
        except (ijson.JSONError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"corpus {self.path}: not JSON after item {self.number}: {' '.join(str(error).split())}"
            ) from error

    def _rows(self, skip: int) -> Iterator[Any]:
        pyarrow = import_pyarrow("Parquet")
        from pyarrow.parquet import ParquetFile

        try:
            with ParquetFile(self.path) as file:
                columns = [name for name in _COLUMNS if name in file.schema_arrow.names]
                size, rows = self.path.stat().st_size, max(1, file.metadata.num_rows)
                for batch in file.iter_batches(_PARQUET_ROWS, columns=columns):
                    if self.number + batch.num_rows <= skip:
                        self.number += batch.num_rows
                        continue
                    for row in _rows_of(batch):
                        self.number += 1
                        if self.number > skip:
                            yield row
                    self.done_bytes = size * self.number // rows
        except pyarrow.ArrowException as error:
            raise ConfigError(f"corpus {self.path}: cannot be read after {self.number} records: {error}") from error


def _rows_of(batch: Any) -> Iterator[Any | BadRecordError]:
    try:
        rows = batch.to_pylist()
    except ValueError:  # one value alone, such as a text that is not UTF-8, would cost the whole batch
        rows = map(_row_of, (batch.slice(row, 1) for row in range(batch.num_rows)))
    for row in rows:
        yield row if isinstance(row, BadRecordError) else {k: value for k, value in row.items() if value is not None}


def _row_of(batch: Any) -> Any | BadRecordError:
    try:
        return batch.to_pylist()[0]
    except UnicodeDecodeError as error:
        return BadRecordError(f"not UTF-8: {error.reason} at byte {error.start}")
    except ValueError as error:
        return BadRecordError(f"no value that can be read: {error}")


def import_pyarrow(what: str) -> Any:
    """
    Raises:
        ConfigError: pyarrow is not installed.
    """
    try:
        import pyarrow
    except ImportError as error:
        raise ConfigError(f"{what} needs pyarrow: pip install 'rollbox[search]'") from error
    return pyarrow


def read_passages(path: Path) -> Iterator[Passage]:
    """The passages of a file in which every record must be one.

    Raises:
        ConfigError: the file cannot be read, or a record is no passage; names file and record.
    """
    reader = RecordReader(path)
    for passage in reader.passages():
        if isinstance(passage, BadRecordError):
            raise ConfigError(f"{path}:{reader.number}: {passage}")
        yield passage


def passage_of_record(record: Any) -> Passage:
    """A passage of `id`, and `contents` or `text` (and `title`).

    Raises:
        BadRecordError: it has not got them.
    """
    if not isinstance(record, dict):
        raise BadRecordError(f"must be an object with id and contents (got {type(record).__name__})")
    name = record.get("id")
    if isinstance(name, bool) or not isinstance(name, str | int) or name == "":
        raise BadRecordError(f"id: must be a non-empty string or an integer (got {reprlib.repr(name)})")
    if isinstance(name, str) and len(name.encode("utf-8", "replace")) > _MAX_ID_BYTES:
        raise BadRecordError(f"id: is longer than {_MAX_ID_BYTES} bytes")
    if "contents" in record:
        contents = record["contents"]
        if not isinstance(contents, str) or not contents.strip():
            raise BadRecordError("contents: must be a string that is not blank")
        return Passage.of_contents(storable(str(name)), storable(contents))
    title, text = record.get("title", ""), record.get("text")
    if not isinstance(text, str) or not text.strip():
        raise BadRecordError("contents (or text): must be a string that is not blank")
    if not isinstance(title, str):
        raise BadRecordError(f"title: must be a string (got {reprlib.repr(title)})")
    return Passage(storable(str(name)), storable(" ".join(title.split())), storable(text.strip()))


def _decoded(line: bytes) -> Any | BadRecordError:
    try:
        # As text: from bytes it would guess an encoding, and take some lines of UTF-16 and not others.
        return json.loads(line.decode())
    except UnicodeDecodeError as error:
        return BadRecordError(f"not UTF-8: {error.reason} at byte {error.start}")
    except (ValueError, RecursionError) as error:
        return BadRecordError(f"not JSON: {error}")
