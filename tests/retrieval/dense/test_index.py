"""The dense part of an index: what it finds, how it is begun, killed and finished, and what it refuses."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rollbox.retrieval.dense.build import build_dense, embedded_text
from rollbox.retrieval.dense.embedder import EmbedderConfig, Vectors
from rollbox.retrieval.dense.manifest import MANIFEST, VECTORS
from rollbox.retrieval.dense.nearest import Kind
from rollbox.retrieval.dense.retriever import DenseRetriever, open_dense
from rollbox.retrieval.dense.sentence_model import SentenceModel
from rollbox.retrieval.passages import Passage
from rollbox.schemas.errors import ConfigError, InfraError

from ..conftest import PASSAGES, ListStore
from .letters import CONFIG, WordVectors, many

pytestmark = pytest.mark.timeout(600)  # the first to need the model waits for ten CPU seconds of imports


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
from tests.retrieval.dense.letters import CONFIG, WordVectors, many
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
