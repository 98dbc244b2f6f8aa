"""The dense part of an index: what it finds, how it is begun, killed and finished, and what it refuses."""

import asyncio
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rollbox.retrieval.dense import build as build_module
from rollbox.retrieval.dense.build import build_dense, embedded_text
from rollbox.retrieval.dense.embedder import EmbedderConfig, Vectors, unit_rows
from rollbox.retrieval.dense.manifest import MANIFEST, PROGRESS, VECTORS
from rollbox.retrieval.dense.nearest import Kind
from rollbox.retrieval.dense.retriever import DenseRetriever, open_dense
from rollbox.retrieval.dense.sentence_model import SentenceModel
from rollbox.retrieval.passages import Passage
from rollbox.schemas.errors import ConfigError, InfraError

from ..conftest import PASSAGES, ListStore

pytestmark = pytest.mark.timeout(600)  # the first to need the model waits for ten CPU seconds of imports


class WordVectors:
    """Vectors of a few numbers, by the letters of a text: quick, and enough where the model does not matter."""

    prefixes = ("", "")

    def __init__(self, dimension: int = 16, salt: int = 0, fails_after: int | None = None) -> None:
        self._dimension = dimension
        self._salt = salt
        self._fails_after = fails_after
        self.texts: list[str] = []

    async def embed(self, texts: Sequence[str], timeout_s: float) -> tuple[Vectors, int]:
        self.texts += texts
        if self._fails_after is not None and len(self.texts) > self._fails_after:
            raise InfraError("embedding server: gone")
        rows = np.zeros((len(texts), self._dimension), dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            for letter in text:
                row[(ord(letter) * 31 + self._salt) % self._dimension] += 1
        return unit_rows(rows), 0

    async def aclose(self) -> None:
        pass


def many(count: int) -> ListStore:
    return ListStore(
        [Passage(str(row), "", f"passage number {row} " + "xyz"[row % 3] * (row % 7)) for row in range(count)]
    )


CONFIG = EmbedderConfig(model="letters")


@pytest.mark.parametrize("kind", ["flat", "ivf", "hnsw"])
async def test_what_is_meant_is_found(
    tmp_path: Path, store: ListStore, embedder_config: EmbedderConfig, embedder: SentenceModel, kind: Kind
) -> None:
    await build_dense(tmp_path / "dense", store, embedder_config, embedder, kind)
    dense = await open_dense(tmp_path / "dense", store)
    (organ, musicians, blank), retries = await dense.search(
        ["which part of me beats?", "musicians from the UK", " "], 2, 60
    )
    assert organ[0].id == "heart"
    assert musicians[0].id == "who"
    assert (musicians[0].title, musicians[0].text) == (PASSAGES[2].title, PASSAGES[2].text)
    assert 1 >= musicians[0].score > musicians[1].score
    assert (blank, retries) == ([], 0)
    await dense.aclose()


@pytest.mark.parametrize("kind", ["flat", "ivf", "hnsw"])
async def test_more_than_there_is(
    tmp_path: Path, store: ListStore, embedder_config: EmbedderConfig, embedder: SentenceModel, kind: Kind
) -> None:
    """faiss answers -1 where it finds no more: that must never become the last passage."""
    await build_dense(tmp_path, store, embedder_config, embedder, kind)
    dense = await open_dense(tmp_path, store)
    [hits], _ = await dense.search(["metal"], 10**9, 60)
    assert len({hit.id for hit in hits}) == len(hits) <= len(PASSAGES)
    assert (await dense.search(["metal"], 0, 60)) == ([[]], 0)


async def test_a_lone_row_minus_one_is_no_passage(tmp_path: Path, store: ListStore) -> None:
    letters = WordVectors()
    manifest = await build_dense(tmp_path, store, CONFIG, letters)

    class Nothing:
        def search(self, queries: Vectors, top_k: int) -> Any:
            return np.full((len(queries), top_k), -3e38, np.float32), np.full((len(queries), top_k), -1, np.int64)

    assert await DenseRetriever(manifest, Nothing(), store, letters).search(["q"], 3, 5) == ([[]], 0)


async def test_prefixes_are_the_indexs(tmp_path: Path, store: ListStore) -> None:
    letters = WordVectors()
    letters.prefixes = ("query: ", "passage: ")
    manifest = await build_dense(tmp_path, store, EmbedderConfig(model="e5", query_prefix="q: "), letters)
    assert letters.texts[1] == "passage: Peru\n" + PASSAGES[0].text
    dense = DenseRetriever(manifest, None, store, letters)  # type: ignore[arg-type]
    with pytest.raises(AttributeError):
        await dense.search(["capital"], 1, 5)
    assert letters.texts[-1] == "q: capital"


async def test_a_build_goes_on_where_it_failed(tmp_path: Path) -> None:
    store = many(2600)
    with pytest.raises(InfraError, match="gone"):
        await build_dense(tmp_path, store, CONFIG, WordVectors(fails_after=2200))
    assert not (tmp_path / MANIFEST).exists()
    with (tmp_path / VECTORS).open("ab") as file:
        file.write(b"what a kill left behind")
    told: list[tuple[int, int]] = []
    letters = WordVectors()
    await build_dense(tmp_path, store, CONFIG, letters, progress=lambda done, total: told.append((done, total)))
    assert len(letters.texts) == 1 + 2600 - 2048
    assert told == [(2048, 2600), (2600, 2600)]
    whole = WordVectors()
    await build_dense(tmp_path / "whole", store, CONFIG, whole)
    assert (tmp_path / VECTORS).read_bytes() == (tmp_path / "whole" / VECTORS).read_bytes()


_BUILD = """
import asyncio, sys
from pathlib import Path
from tests.retrieval.dense.test_index import CONFIG, WordVectors, many
from rollbox.retrieval.dense import build as build_module
from rollbox.retrieval.dense.build import build_dense
print("ready", flush=True)
told = lambda done, total: done and (print(done, flush=True), sys.stdin.readline())
asyncio.run(build_dense(Path(sys.argv[1]), many(5000), CONFIG, WordVectors(), progress=told))
"""


async def test_a_killed_build_loses_one_batch_at_most(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _BUILD, str(tmp_path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3]
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert [process.stdout.readline() for _ in range(2)] == ["ready\n", "1024\n"]
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "2048\n"
        os.kill(process.pid, signal.SIGKILL)
    letters = WordVectors()
    manifest = await build_dense(tmp_path, many(5000), CONFIG, letters)
    assert len(letters.texts) == 1 + 5000 - 2048
    assert (manifest.passages, manifest.rows_done) == (5000, 5000)


async def test_another_kind_keeps_the_vectors(tmp_path: Path) -> None:
    store, letters = many(3000), WordVectors()
    await build_dense(tmp_path, store, CONFIG, letters)
    letters.texts.clear()
    await build_dense(tmp_path, store, CONFIG, letters, "hnsw")
    assert len(letters.texts) == 1  # the probe
    assert json.loads((tmp_path / MANIFEST).read_text())["kind"] == "hnsw"


@pytest.mark.parametrize(
    ("config", "letters", "named"),
    [
        (EmbedderConfig(model="other"), WordVectors(), "another model ('letters', now 'other')"),
        (EmbedderConfig(model="letters", passage_prefix="p: "), WordVectors(), "another passage_prefix"),
        (CONFIG, WordVectors(dimension=8), "another dimension (16, now 8)"),
        (CONFIG, WordVectors(salt=5), "is another one than the index was built with"),
    ],
)
async def test_what_was_begun_otherwise_is_refused(
    tmp_path: Path, config: EmbedderConfig, letters: WordVectors, named: str
) -> None:
    await build_dense(tmp_path, many(10), CONFIG, WordVectors())
    with pytest.raises(ConfigError) as caught:
        await build_dense(tmp_path, many(10), config, letters)
    assert named in str(caught.value)


async def test_other_passages_are_refused(
    tmp_path: Path, store: ListStore, embedder_config: EmbedderConfig, embedder: SentenceModel
) -> None:
    await build_dense(tmp_path, store, embedder_config, embedder)
    changed = ListStore([*PASSAGES[:-1], Passage("tcp", "TCP", "Something else.")])
    for other in (changed, ListStore(PASSAGES[:-1])):
        with pytest.raises(ConfigError, match="is of other passages"):
            await open_dense(tmp_path, other)
    with pytest.raises(ConfigError, match="another passages"):
        await build_dense(tmp_path, changed, embedder_config, embedder)


async def test_no_passages(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no passages"):
        await build_dense(tmp_path, ListStore([]), CONFIG, WordVectors())


def _forget_files(folder: Path) -> None:
    """As in an index of a version that kept no checksums."""
    record = json.loads((folder / MANIFEST).read_text())
    del record["files"]
    (folder / MANIFEST).write_text(json.dumps(record))


def _damage(folder: Path, how: str) -> None:
    path = folder / {"vectors cut": VECTORS, "graph cut": "hnsw.faiss", "graph gone": "hnsw.faiss"}.get(how, MANIFEST)
    if "cut" in how:
        os.truncate(path, path.stat().st_size // 2)
    elif "gone" in how:
        path.unlink()
    elif how == "not JSON":
        path.write_bytes(b"\xff\x00")
    elif how == "newer":
        path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 99}))
    elif how == "foreign key":
        path.write_text(json.dumps(json.loads(path.read_text()) | {"kind": "annoy"}))


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("vectors cut", "cut off or replaced"),
        ("graph cut", "no faiss index that can be read"),
        ("graph gone", "no faiss index that can be read"),
        ("gone", "no finished dense part"),
        ("not JSON", "cannot be read"),
        ("newer", "format 99 is newer"),
        ("foreign key", "kind"),
    ],
)
async def test_damage_is_named(
    tmp_path: Path, store: ListStore, embedder_config: EmbedderConfig, embedder: SentenceModel, how: str, says: str
) -> None:
    await build_dense(tmp_path, store, embedder_config, embedder, "hnsw")
    _forget_files(tmp_path)
    _damage(tmp_path, how)
    with pytest.raises(ConfigError) as caught:
        await open_dense(tmp_path, store)
    assert says in str(caught.value)
    assert str(tmp_path) in str(caught.value)


async def test_cut_lists_are_no_crash(tmp_path: Path) -> None:
    store = many(500)
    await build_dense(tmp_path, store, CONFIG, WordVectors(), "ivf")
    _forget_files(tmp_path)
    os.truncate(tmp_path / "ivf.lists", 1000)
    with pytest.raises(ConfigError, match="holds 1000 bytes and not"):
        await open_dense(tmp_path, store)


@pytest.mark.parametrize(
    ("kind", "name"), [("flat", VECTORS), ("ivf", "ivf.lists"), ("ivf", "ivf.faiss"), ("hnsw", "hnsw.faiss")]
)
async def test_a_byte_that_changed_is_seen(tmp_path: Path, kind: Kind, name: str) -> None:
    folder = tmp_path / "dense"
    manifest = await build_dense(folder, many(500), CONFIG, WordVectors(), kind)
    assert name in manifest.files
    with (folder / name).open("r+b") as file:
        file.seek(-5, os.SEEK_END)
        byte = file.read(1)
        file.seek(-5, os.SEEK_END)
        file.write(bytes([byte[0] ^ 0x40]))
    with pytest.raises(ConfigError, match=f"is damaged: dense/{name} has other contents than were written; delete"):
        await open_dense(folder, many(500))
    os.truncate(folder / name, 100)
    with pytest.raises(ConfigError, match=f"is damaged: dense/{name} has 100 bytes and should have"):
        await open_dense(folder, many(500), verify=False)


@pytest.mark.parametrize("kind", ["ivf", "hnsw"])
async def test_what_is_being_served_is_not_written_over(tmp_path: Path, kind: Kind) -> None:
    store, files = many(3000), {"ivf": ["ivf.faiss", "ivf.lists"], "hnsw": ["hnsw.faiss"]}[kind]
    await build_dense(tmp_path, store, CONFIG, WordVectors(), kind)
    with ExitStack() as stack:
        served = [stack.enter_context((tmp_path / name).open("rb")) for name in files]
        before = [file.read() for file in served]
        await build_dense(tmp_path, store, CONFIG, WordVectors(), kind)
        for file, name, content in zip(served, files, before, strict=True):
            assert not os.path.samestat(os.fstat(file.fileno()), (tmp_path / name).stat())
            file.seek(0)
            assert file.read() == content


async def test_a_build_that_fails_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = many(3000)
    await build_dense(tmp_path, store, CONFIG, WordVectors(), "ivf")
    before = _finished(tmp_path)

    def fails(kind: Kind, folder: Path, vectors: Vectors) -> None:
        (folder / "hnsw.faiss").write_bytes(b"half of it")
        raise RuntimeError("crash")

    with monkeypatch.context() as patch:
        patch.setattr(build_module, "build_nearest", fails)
        with pytest.raises(RuntimeError):
            await build_dense(tmp_path, store, CONFIG, WordVectors(), "hnsw")
    assert _finished(tmp_path) == before


def _finished(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {path.name: (path.stat().st_ino, path.read_bytes()) for path in folder.iterdir() if path.name != PROGRESS}


@pytest.mark.parametrize(
    ("kind", "limit_bytes"), [("flat", 50_000), ("ivf", 200_000), ("hnsw", 200_000)]
)  # 3000 vectors take 192 kB
async def test_a_full_disk_is_said_and_gone_on_from(tmp_path: Path, kind: Kind, limit_bytes: int) -> None:
    store, (_, hard) = many(3000), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, hard))
    try:
        with pytest.raises(ConfigError, match=r"cannot be (written|built): .*same command"):
            await build_dense(tmp_path, store, CONFIG, WordVectors(), kind)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    with pytest.raises(ConfigError, match="no finished dense part"):
        await open_dense(tmp_path, store)
    assert (await build_dense(tmp_path, store, CONFIG, WordVectors(), kind)).passages == 3000
    assert set(os.listdir(tmp_path)) - {"ivf.lists", f"{kind}.faiss"} == {MANIFEST, PROGRESS, VECTORS}


async def test_lists_are_not_begun_where_they_have_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=200_000))
    with pytest.raises(ConfigError, match="the disk has 0 MiB free"):
        await build_dense(tmp_path, many(3000), CONFIG, WordVectors(), "ivf")


async def test_a_moved_index_is_found(
    tmp_path: Path, store: ListStore, embedder_config: EmbedderConfig, embedder: SentenceModel
) -> None:
    await build_dense(tmp_path / "here", store, embedder_config, embedder, "ivf")
    (tmp_path / "here").rename(tmp_path / "there")
    dense = await open_dense(tmp_path / "there", store)
    [hits], _ = await dense.search(["internet protocol"], 1, 60)
    assert hits[0].id == "tcp"


async def test_another_model_of_the_same_name_is_known(
    tmp_path: Path, store: ListStore, embedder_config: EmbedderConfig, embedder: SentenceModel
) -> None:
    await build_dense(tmp_path, store, embedder_config, embedder)
    path = tmp_path / MANIFEST
    record = json.loads(path.read_text())
    record["probe"] = record["probe"][::-1]
    path.write_text(json.dumps(record))
    with pytest.raises(ConfigError, match="is another one than the index was built with"):
        await open_dense(tmp_path, store)


def test_no_model_is_downloaded() -> None:
    with pytest.raises(ConfigError, match="nothing is downloaded here"):
        SentenceModel("no-such-owner/no-such-model")


def test_a_folder_that_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be loaded"):
        SentenceModel(str(tmp_path))


async def test_a_time_limit(embedder: SentenceModel) -> None:
    with pytest.raises(InfraError, match="took longer than"):
        await embedder.embed(["a few words " * 50] * 64, 0.01)


async def test_batches_come_back_in_order(embedder: SentenceModel) -> None:
    texts = [f"{word} " * (1 + place % 7) for place, word in enumerate(["gold", "heart", "tokyo", "rock"] * 20)]
    together, _ = await embedder.embed(texts, 300)  # of 32 at a time
    for place in (0, 31, 32, 79):
        [alone], _ = await embedder.embed([texts[place]], 300)
        assert float(together[place] @ alone) > 0.999


async def test_what_nobody_waits_for_is_not_embedded(model_dir: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = SentenceModel(model_dir, "cpu", batch_size=1)
    begun, batches = asyncio.Event(), []
    loop, real = asyncio.get_running_loop(), model._embed

    def counted(texts: list[str]) -> Vectors:
        batches.append(texts)
        loop.call_soon_threadsafe(begun.set)
        return real(texts)

    monkeypatch.setattr(model, "_embed", counted)
    task = asyncio.create_task(model.embed([f"text {number}" for number in range(500)], 300))
    await begun.wait()
    task.cancel()
    await asyncio.wait([task])
    await model.embed(["the next"], 300)
    assert batches[-1] == ["the next"]
    assert sum(map(len, batches)) < 500


def test_the_title_is_embedded_too() -> None:
    assert embedded_text(Passage("1", "Peru", "Lima."), "passage: ") == "passage: Peru\nLima."
    assert embedded_text(Passage("1", "", "Lima."), "") == "Lima."
