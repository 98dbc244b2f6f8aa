"""Every form in which a corpus comes, and every way in which one is damaged."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from rollbox.retrieval.bm25 import Bm25Index
from rollbox.retrieval.index import corpus_records
from rollbox.retrieval.index.corpus_files import CorpusFile, corpus_files, corpus_state
from rollbox.retrieval.index.corpus_records import BadRecordError, RecordReader, passage_of_record
from rollbox.retrieval.passages import Passage
from rollbox.schemas.errors import ConfigError

from .corpora import records

RECORDS = records(2500)
LINES = "".join(f"{json.dumps(record)}\n" for record in RECORDS).encode()


def zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def parquet(path: Path) -> None:
    # In groups of rows smaller than what is read at a time.
    pa.parquet.write_table(pa.Table.from_pylist(RECORDS), path, row_group_size=700)


FORMS: dict[str, Callable[[Path], object]] = {
    "c.jsonl": lambda path: path.write_bytes(LINES),
    "bom.jsonl": lambda path: path.write_bytes(b"\xef\xbb\xbf" + LINES),
    "crlf.ndjson": lambda path: path.write_bytes(LINES.replace(b"\n", b"\r\n")),
    "last.jsonl": lambda path: path.write_bytes(LINES.rstrip()),
    "lines.json": lambda path: path.write_bytes(LINES),
    "array.json": lambda path: path.write_text(json.dumps(RECORDS, indent=2)),
    "bom-array.json": lambda path: path.write_bytes(b"\xef\xbb\xbf\n " + json.dumps(RECORDS).encode()),
    "array.json.gz": lambda path: path.write_bytes(gzip.compress(json.dumps(RECORDS).encode())),
    "c.jsonl.gz": lambda path: path.write_bytes(gzip.compress(LINES)),
    "members.jsonl.gz": lambda path: path.write_bytes(gzip.compress(LINES[:9000]) + gzip.compress(LINES[9000:])),
    "c.jsonl.zst": lambda path: path.write_bytes(zstd(LINES)),
    "frames.jsonl.zst": lambda path: path.write_bytes(zstd(LINES[:9000]) + zstd(LINES[9000:])),
    "c.parquet": parquet,
}


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("skip", [0, 1, 999, 1000, 1001, 2500])
def test_a_form_is_read_from_anywhere(tmp_path: Path, name: str, skip: int) -> None:
    FORMS[name](tmp_path / name)
    reader = RecordReader(tmp_path / name)
    assert list(reader.records(skip)) == RECORDS[skip:]
    assert reader.number == 2500


def test_titles_and_texts_are_kept_as_search_r1_would_send_them(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    contents = ['"A"\nalpha', "B\nbeta ", "gamma", '"D"\n\n delta', "é\n\U0001f600"]
    path.write_text("\n\n".join(json.dumps({"id": i, "contents": text}) for i, text in enumerate(contents)))
    passages = [passage for passage in RecordReader(path).passages() if isinstance(passage, Passage)]
    assert [passage.contents for passage in passages] == contents
    assert [(passage.title, passage.text) for passage in passages[:4]] == [
        ("A", "alpha"),
        ("B", "beta"),
        ("", "gamma"),
        ("D", "delta"),
    ]


def test_bad_records_are_told_and_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus_records, "_MAX_LINE_BYTES", 10_000)
    fine = b'{"id": 1, "contents": "fine"}'
    bad = [b"{", b"\xff\xfe", b"[" * 9_000, b'"' + b"x" * 50_000 + b'"', b"null", b'{"id": true, "text": "x"}', b"{}"]
    path = tmp_path / "c.jsonl"
    path.write_bytes(b"\n".join([fine, *bad, b"", fine]))
    reader = RecordReader(path)
    found = [(reader.number, passage) for passage in reader.passages()]
    assert [number for number, passage in found if isinstance(passage, Passage)] == [1, 10]
    reasons = [str(passage) for _, passage in found if isinstance(passage, BadRecordError)]
    starts = [
        "not JSON",
        "not UTF-8",
        "not JSON",
        "the line is longer",
        "must be an object",
        "id: must be",
        "id: must be",
    ]
    assert len(reasons) == len(starts)
    assert all(reason.startswith(start) for reason, start in zip(reasons, starts, strict=True)), reasons


def test_rows_without_a_value_are_bad_records(tmp_path: Path) -> None:
    rows = [
        {"id": "1", "title": None, "text": "fine"},
        {"id": None, "title": "T", "text": "x"},
        {"id": "3", "text": None},
    ]
    pa.parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "c.parquet")
    first, *others = RecordReader(tmp_path / "c.parquet").passages()
    assert first == Passage("1", "", "fine")
    assert [type(other) for other in others] == [BadRecordError, BadRecordError]


def test_a_row_that_is_not_utf8_costs_no_other(tmp_path: Path) -> None:
    texts = pa.array([b"fine", b"\xff\xfe", b"fine too"], pa.binary())
    table = pa.table({"id": ["1", "2", "3"], "text": pa.Array.from_buffers(pa.string(), 3, texts.buffers())})
    pa.parquet.write_table(table, tmp_path / "c.parquet")
    first, bad, last = RecordReader(tmp_path / "c.parquet").passages()
    assert (first, last) == (Passage("1", "", "fine"), Passage("3", "", "fine too"))
    assert str(bad) == "not UTF-8: invalid start byte at byte 0"


@pytest.mark.parametrize(("groups", "rows", "row_bytes"), [(20, 20, 250_000), (8, 100, 100_000)])
def test_a_parquet_file_is_not_in_memory_at_once(tmp_path: Path, groups: int, rows: int, row_bytes: int) -> None:
    with pa.parquet.ParquetWriter(
        tmp_path / "c.parquet", pa.schema([("id", pa.string()), ("text", pa.string())])
    ) as out:
        for group in range(groups):
            names = [f"{group}-{row}" for row in range(rows)]
            texts = [os.urandom(row_bytes // 2).hex() for _ in names]
            out.write_table(pa.table({"id": names, "text": texts}))
    pool, before = pa.proxy_memory_pool(pa.system_memory_pool()), pa.default_memory_pool()
    pa.set_memory_pool(pool)
    try:
        assert sum(1 for _ in RecordReader(tmp_path / "c.parquet").records()) == groups * rows
    finally:
        pa.set_memory_pool(before)
    assert pool.max_memory() < groups * rows * row_bytes // 2


@pytest.mark.parametrize("field", ["id", "title"])
def test_what_is_said_of_a_bad_value_is_short(tmp_path: Path, field: str) -> None:
    nested = "[" * 2_000 + "]" * 2_000  # deeper than Python's own repr goes
    good = '{"id": "1", "text": "x"}'
    (tmp_path / "c.json").write_text(f'[{good}, {{"id": "2", "text": "x", "{field}": {nested}}}]')
    (tmp_path / "c.jsonl").write_text(f"{good}\n" + json.dumps({"id": "2", "text": "x", field: ["y"] * 50_000}))
    for name in ("c.json", "c.jsonl"):
        _, bad = RecordReader(tmp_path / name).passages()
        assert isinstance(bad, BadRecordError)
        assert str(bad).startswith(f"{field}: must be ")
        assert len(str(bad)) < 200


def test_an_id_is_no_longer_than_can_be_looked_up() -> None:
    longest = passage_of_record({"id": "é" * 32_765, "text": "x"})
    assert Bm25Index.of([longest]).has_id(longest.id)
    with pytest.raises(BadRecordError, match="id: is longer than 65530 bytes"):
        passage_of_record({"id": longest.id + "x", "text": "x"})


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32"])
def test_another_encoding_is_not_guessed(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "c.jsonl").write_bytes(LINES.decode().encode(encoding))
    assert all(isinstance(passage, BadRecordError) for passage in RecordReader(tmp_path / "c.jsonl").passages())


DAMAGED = {
    "cut.jsonl.gz": gzip.compress(LINES)[:-2000],
    "no.jsonl.gz": b"not gzip at all",
    "flipped.jsonl.gz": bytes(b ^ (i == 200) for i, b in enumerate(gzip.compress(LINES))),
    "cut.jsonl.zst": zstd(LINES)[:-500],
    "no.jsonl.zst": b"not zstd at all",
    "cut.json": json.dumps(RECORDS).encode()[:-100],
    "trailing.json": json.dumps(RECORDS).encode() + b"]",
    "no.parquet": b"not parquet at all",
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_file_is_named_and_not_taken_for_its_beginning(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(DAMAGED[name])
    with pytest.raises(ConfigError, match=f"corpus .*{name}: ") as caught:
        list(RecordReader(tmp_path / name).records())
    assert "\n" not in str(caught.value)


def test_folders_globs_and_files(tmp_path: Path) -> None:
    for name in ("b/2.jsonl", "b/1.json.gz", "b/notes.txt", "b/.cache/3.jsonl", "a.parquet"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    names = [str(tmp_path / "b"), str(tmp_path / "*.parquet"), str(tmp_path / "b" / "2.jsonl")]
    found = [str(path.relative_to(tmp_path)) for path in corpus_files(names, tmp_path / "index")]
    assert found == ["b/1.json.gz", "b/2.jsonl", "a.parquet"]


@pytest.mark.parametrize(
    ("name", "said"),
    [("absent.jsonl", "no such file"), ("*.zip", "no such file"), ("x.txt", "must end"), ("", "holds no")],
)
def test_what_is_no_corpus(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "x.txt").touch()
    with pytest.raises(ConfigError, match=said):
        corpus_files([str(tmp_path / name)], tmp_path / "index")


def test_what_cannot_be_read_as_a_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "folder.jsonl").mkdir()
    names = {
        str(tmp_path / "pipe.jsonl"): "is no file",  # and not waited for
        str(tmp_path / "a" / "*.jsonl"): "is no file",
        "x" * 5000: "File name too long",
        "": "a name is empty",
    }
    for name, said in names.items():
        with pytest.raises(ConfigError, match=said) as caught:
            corpus_files([name], tmp_path / "index")
        assert len(str(caught.value)) < 500


def test_one_file_by_several_names_is_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("c.jsonl").touch()
    Path("link.jsonl").symlink_to("c.jsonl")
    names = ["c.jsonl", str(tmp_path / "c.jsonl"), "link.jsonl", "."]
    assert corpus_files(names, tmp_path / "index") == [Path("c.jsonl")]


def test_a_change_of_the_corpus_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    path.write_bytes(LINES)
    file = CorpusFile.of(path)
    assert corpus_state([file]) == ("unchanged", [])
    path.touch()
    assert corpus_state([file]) == ("unchanged", [])
    path.write_bytes(LINES.replace(b"word7 ", b"word8 "))
    assert corpus_state([file]) == ("changed", [f"{path} has other contents"])
    path.write_bytes(LINES[:-1])
    assert corpus_state([file]) == ("changed", [f"{path} has {len(LINES) - 1} bytes, and had {len(LINES)}"])
    path.unlink()
    assert corpus_state([file]) == ("absent", [])
