"""An index that is damaged, foreign, newer, or goes away: said at the start, or survived while serving."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from rollbox.retrieval.bm25 import Bm25Index
from rollbox.retrieval.index.manifest import BAD_LINES, BM25, BUILDING, MANIFEST, read_manifest
from rollbox.retrieval.index.opened import open_index
from rollbox.schemas.errors import ConfigError, InfraError

from .corpora import build, records, refused, serving, write_lines


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    build(write_lines(folder / "c.jsonl", records(3000)), folder / "index")
    return folder


@pytest.fixture
def index(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made / "index", tmp_path / "index")
    return tmp_path / "index"


def largest(index: Path, suffix: str = "") -> Path:
    files = [path for path in (index / BM25).iterdir() if path.name.endswith(suffix)]
    return max(files, key=lambda path: path.stat().st_size)


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 0x40
    path.write_bytes(data)


def rewrite(index: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Another manifest, with a checksum that fits it."""
    content = json.loads((index / MANIFEST).read_text())
    del content["checksum"]
    change(content)
    checksum = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    (index / MANIFEST).write_text(json.dumps({**content, "checksum": checksum}))


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "truncated segment": (lambda index: os.truncate(largest(index), 100), "has 100 bytes and should have"),
    "missing file": (lambda index: largest(index).unlink(), "cannot be read: No such file"),
    "missing folder": (lambda index: shutil.rmtree(index / BM25), "cannot be read: No such file"),
    "bit flip in a segment": (lambda index: flip(largest(index), 500), "has other contents than were written"),
    "bit flip in meta.json": (lambda index: flip(index / BM25 / "meta.json", 30), "has other contents"),
    "bit flip in the manifest": (lambda index: flip(index / MANIFEST, 200), "manifest.json is damaged"),
    "half a manifest": (lambda index: os.truncate(index / MANIFEST, 300), "manifest.json is damaged"),
    "empty manifest": (lambda index: os.truncate(index / MANIFEST, 0), "manifest.json is damaged"),
    "a list for a manifest": (lambda index: (index / MANIFEST).write_text("[]"), "is not of an index of Rollbox's"),
    "another program's manifest": (lambda index: (index / MANIFEST).write_text('{"name": "x"}'), "is not of an index"),
    "no manifest": (lambda index: (index / MANIFEST).unlink(), "is not an index: it holds no manifest.json"),
    "a newer format": (lambda index: rewrite(index, lambda c: c.update(format=2)), "has format 2, and this version"),
    "other analysis": (lambda index: rewrite(index, lambda c: c["analysis"].update(stemmer="french")), "another text"),
    "fewer passages": (lambda index: rewrite(index, lambda c: c.update(passages=5)), "holds 3000 passages and should"),
    "an unknown field": (lambda index: rewrite(index, lambda c: c.update(colour="red")), "colour: Extra inputs"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_said_when_it_is_opened(index: Path, damage: str) -> None:
    harm, said = DAMAGE[damage]
    harm(index)
    with pytest.raises(ConfigError) as caught:
        open_index(index)
    text = str(caught.value)
    assert said in text
    assert text.startswith(f"index {index}: ")
    assert "\n" not in text


@pytest.mark.parametrize("damage", ["truncated segment", "bit flip in the manifest", "a newer format", "no manifest"])
def test_a_server_does_not_start_on_it(index: Path, damage: str) -> None:
    harm, said = DAMAGE[damage]
    harm(index)
    assert said in refused(index)


def test_what_is_no_index_folder(tmp_path: Path, made: Path) -> None:
    assert "there is no such folder" in refused(tmp_path / "absent")
    assert "there is no such folder" in refused(made / "c.jsonl")
    assert "is not an index" in refused(tmp_path)
    assert "needs one index folder" in refused(made / "index", str(made / "index"), "--backend", "bm25")


def test_a_build_that_goes_on_is_named_with_its_command(index: Path) -> None:
    (index / MANIFEST).unlink()
    (index / BUILDING).write_text(json.dumps({"command": "rollbox retriever index my.jsonl --out here", "corpus": []}))
    assert "is not finished; go on with: rollbox retriever index my.jsonl --out here" in refused(index)


@pytest.mark.parametrize("suffix", [".store", ".term", ".idx"])
def test_damage_that_nobody_looked_for_is_an_error_and_not_the_end(index: Path, suffix: str) -> None:
    """Sizes are right and checksums not compared: whatever tantivy makes of it, a query fails or finds something."""
    path = largest(index, suffix)
    data = path.read_bytes()
    # The last bytes are tantivy's own description of the file, which it checks when opening.
    broken = bytearray(data)
    for place in range(0, len(data) - 400, 7):
        broken[place] ^= 0xFF
    path.write_bytes(broken)
    errors: list[Exception] = []
    try:
        opened = open_index(index, verify=False)
        for number in range(0, 3000, 97):
            try:
                opened.bm25.search(f"word{number} passage", 3)
            except InfraError as error:
                errors.append(error)
    except ConfigError as error:
        errors.append(error)
    assert all("the index is damaged" in str(error) for error in errors)
    assert errors or suffix != ".store"


async def ask(url: str, *queries: str) -> tuple[int, Any]:
    async with aiohttp.ClientSession(url) as http, http.post("/retrieve", json={"queries": queries}) as response:
        return response.status, await response.json()


async def info(url: str) -> dict[str, Any]:
    async with aiohttp.ClientSession(url) as http, http.get("/v1/info") as response:
        found: dict[str, Any] = await response.json()
    return found


async def test_a_damaged_passage_is_a_503_and_the_server_stays(index: Path) -> None:
    path = largest(index, ".store")
    data = bytearray(path.read_bytes())
    # Blocks of some hundred passages each; the first ones, and with them the probe's, stay whole.
    for place in range(len(data) // 2, len(data) - 400, 3):
        data[place] ^= 0xFF
    path.write_bytes(data)
    with serving(index, "--no-verify") as url:
        assert (await ask(url, "word2"))[0] == 200
        for _ in range(3):
            status, answer = await ask(url, "word2950")
            assert (status, answer["kind"]) == (503, "infra")
            assert "the index is damaged" in answer["detail"]
        assert (await ask(url, "word3"))[0] == 200


async def test_an_index_that_is_deleted_is_served_on(index: Path) -> None:
    with serving(index, "--cache-hits", "0") as url:
        assert (await info(url))["folder_is"] == "current"
        shutil.rmtree(index)
        for number in range(0, 3000, 100):
            _, answer = await ask(url, f"word{number}")
            assert answer["result"][0][0]["id"] == f"p{number}"
        assert (await info(url))["folder_is"] == "deleted"


async def test_an_index_that_is_replaced_is_served_as_it_was(index: Path, tmp_path: Path) -> None:
    build(write_lines(tmp_path / "other.jsonl", [{"id": "new", "text": "something new"}]), tmp_path / "other")
    with serving(index, "--cache-hits", "0") as url:
        shutil.rmtree(index)
        (tmp_path / "other").rename(index)
        assert (await info(url))["folder_is"] == "replaced"
        assert (await ask(url, "something new"))[1] == {"result": [[]]}
        assert (await ask(url, "word5"))[1]["result"][0][0]["id"] == "p5"
    with serving(index) as url:
        assert (await ask(url, "something new"))[1]["result"][0][0]["id"] == "new"


async def test_building_it_again_under_a_server_does_not_disturb_it(index: Path, tmp_path: Path) -> None:
    corpus = write_lines(tmp_path / "other.jsonl", [{"id": "new", "text": "something new"}])
    with serving(index, "--cache-hits", "0") as url:
        build(corpus, index, restart=True)
        assert (await ask(url, "word5"))[1]["result"][0][0]["id"] == "p5"
        assert (await info(url))["folder_is"] == "replaced"


async def test_a_corpus_that_changed_is_told_and_with_strict_refused(tmp_path: Path) -> None:
    corpus = write_lines(tmp_path / "c.jsonl", records(10))
    build(corpus, tmp_path / "index")
    with serving(tmp_path / "index", "--strict") as url:
        assert (await info(url))["corpus"] == "unchanged"
    write_lines(corpus, records(11))
    with serving(tmp_path / "index") as url:
        told = await info(url)
        assert (told["corpus"], told["passages"]) == ("changed", 10)
        assert "c.jsonl has" in told["corpus_changes"][0]
    assert "its corpus has changed since" in refused(tmp_path / "index", "--strict")
    corpus.unlink()
    with serving(tmp_path / "index", "--strict") as url:
        assert (await info(url))["corpus"] == "absent"


def test_a_read_only_folder_is_served(index: Path) -> None:
    for path in [index / BM25, index]:
        path.chmod(0o555)
    before = sorted((path.name, path.stat().st_mtime_ns) for path in (index / BM25).iterdir())
    try:
        opened = open_index(index)
        assert opened.bm25.search("word5", 1)[0].id == "p5"
    finally:
        for path in [index / BM25, index]:
            path.chmod(0o755)
    assert sorted((path.name, path.stat().st_mtime_ns) for path in (index / BM25).iterdir()) == before


def test_opening_leaves_nothing_behind(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    assert len(Bm25Index.open(index / BM25)) == 3000
    assert list((tmp_path / "temporary").iterdir()) == []
    assert sorted(path.name for path in index.iterdir()) == [BAD_LINES, BM25, MANIFEST]
    assert read_manifest(index).passages == 3000


@pytest.fixture(autouse=True)
def _quiet_panics(capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    """A panic's report goes to stderr; it is expected here."""
    yield
    capfd.readouterr()
