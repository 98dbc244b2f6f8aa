"""The dense part of an index that was damaged, is being served, or finds no room on the disk."""

import json
import os
import resource
import shutil
from contextlib import ExitStack
from pathlib import Path

import pytest

from rollbox.retrieval.dense import build as build_module
from rollbox.retrieval.dense.build import build_dense
from rollbox.retrieval.dense.embedder import EmbedderConfig, Vectors
from rollbox.retrieval.dense.manifest import MANIFEST, PROGRESS, VECTORS
from rollbox.retrieval.dense.nearest import Kind
from rollbox.retrieval.dense.retriever import open_dense
from rollbox.retrieval.dense.sentence_model import SentenceModel
from rollbox.schemas.errors import ConfigError

from ..conftest import ListStore
from .letters import CONFIG, WordVectors, many

pytestmark = pytest.mark.timeout(600)  # the first to need the model waits for ten CPU seconds of imports


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
