"""Dense, hybrid, replicated and sharded search as a person starts them: the commands, over real HTTP."""

import asyncio
import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from rollbox.cli.dense_index import add_dense, dense_request
from rollbox.retrieval.backend import BackendOptions
from rollbox.retrieval.backends import BACKENDS, open_backend
from rollbox.retrieval.bm25 import Bm25Index
from rollbox.retrieval.dense.build import build_dense
from rollbox.retrieval.dense.embedder import EmbedderConfig
from rollbox.retrieval.dense.sentence_model import SentenceModel
from rollbox.retrieval.lazy_backend import LazyBackend
from rollbox.retrieval.services.remote import RemoteRetriever
from rollbox.schemas.errors import ConfigError, InfraError
from rollbox.tools.search import SearchTool

from .conftest import PASSAGES
from .corpora import COMMAND, build, refused, serving, write_lines

pytestmark = pytest.mark.timeout(600)  # the first to need the model waits for ten CPU seconds of imports
RECORDS = [{"id": each.id, "title": each.title, "text": each.text} for each in PASSAGES]


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=500, check=False)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_lines(tmp_path_factory.mktemp("corpus") / "c.jsonl", RECORDS)


@pytest.fixture(scope="module")
def index(
    corpus: Path, embedder_config: EmbedderConfig, embedder: SentenceModel, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    out = tmp_path_factory.mktemp("index") / "index"
    build(corpus, out)
    asyncio.run(build_dense(out / "dense", Bm25Index.open(out / "bm25"), embedder_config, embedder, "hnsw"))
    return out


@pytest.fixture(scope="module")
def hybrid_url(index: Path) -> Iterator[str]:
    with serving(index, "--backend", "hybrid", "--weights", "1", "--weights", "0.5", "--device", "cpu") as url:
        yield url


async def test_a_dense_backend(index: Path) -> None:
    async with open_backend("dense", [str(index)], BackendOptions()) as backend:
        (organ, metal, blank), _ = await backend.retriever.search(
            ["which part of me beats?", "yellow element", " "], 3, 60
        )
        assert backend.info()["dense_kind"] == "hnsw"
        [[probed]], _ = await backend.retriever.search([backend.probe], 1, 60)
    assert (organ[0].id, metal[0].id, blank, probed.id) == ("heart", "gold", [], "peru")
    assert len(organ) == 3


async def test_a_hybrid_server_finds_by_words_and_by_meaning(hybrid_url: str) -> None:
    client = RemoteRetriever(f"{hybrid_url}/retrieve", 4)
    found, _ = await client.search(["musicians from the UK", "1964", " "], 1, 60)
    await client.aclose()
    assert [[hit.id for hit in hits] for hits in found] == [["who"], ["who"], []]
    async with aiohttp.ClientSession() as http, http.get(f"{hybrid_url}/v1/info") as answer:
        info = await answer.json()
    assert (info["backend"], info["weights"], info["dimension"]) == ("hybrid", [1.0, 0.5], 384)


async def test_a_hybrid_of_a_folder_and_of_an_address(index: Path, hybrid_url: str) -> None:
    sources = [f"bm25+{index}", f"remote+{hybrid_url}/retrieve"]
    async with open_backend("hybrid", sources, BackendOptions()) as backend:
        [[hit]], _ = await backend.retriever.search(["yellow element"], 1, 60)
        assert hit.id == "gold"
        assert [part.get("passages") for part in backend.info()["parts"]] == [6, None]
    with pytest.raises(ConfigError, match=r"NAME\+SOURCE"):
        async with open_backend("hybrid", [str(index), f"{hybrid_url}/retrieve"], BackendOptions()):
            pass


def test_vectors_can_be_added_later_and_not_to_another_corpus(corpus: Path, tmp_path: Path, model_dir: str) -> None:
    out = tmp_path / "index"
    build(corpus, out)
    with pytest.raises(ConfigError, match="has no finished dense part"):
        asyncio.run(_opened("dense", out))
    with pytest.raises(ConfigError, match="of another corpus"):
        add_dense(
            [str(write_lines(tmp_path / "other.jsonl", RECORDS))], out, dense_request({"model": model_dir}, "flat")
        )
    done = command("index", str(corpus), "--out", str(out), "--dense", model_dir, "--device", "cpu")
    assert done.returncode == 0, done.stderr
    assert "6 vectors of 384 numbers (flat), query prefix '', passage prefix ''" in done.stdout
    asyncio.run(_opened("dense", out))


async def _opened(name: str, *sources: Path | str, **options: Any) -> None:
    async with open_backend(name, [str(source) for source in sources], BackendOptions(**options)):
        pass


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--dense", "no/where"], "nothing is downloaded here"),
        (["--dense", "m", "--dense-kind", "annoy"], "--dense-kind: must be one of flat, ivf, hnsw (got 'annoy')"),
        (["--dense-url", "http://127.0.0.1:9/v1/embeddings"], "needs --dense MODEL too"),
        (["--dense", "m", "--dense-url", "host:9"], "url"),
        (["--dense", "m", "--dense-url", "http://127.0.0.1:9/v1/embeddings"], "the same command goes on from here"),
    ],
)
def test_options_that_are_wrong(corpus: Path, tmp_path: Path, arguments: list[str], says: str) -> None:
    done = command("index", str(corpus), "--out", str(tmp_path / "index"), *arguments)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("annoy", {}, "there is no 'annoy'"),
        ("hybrid", {"weights": [1.0]}, "1 weights for 2 sources"),
        ("dense", {"embedding_model": "no/where"}, "nothing is downloaded here"),
        ("qdrant", {}, "needs one address"),
        ("elasticsearch", {}, "is no address"),
    ],
)
async def test_backends_that_do_not_open(index: Path, name: str, options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        await _opened(name, index, **options)


def test_a_server_that_does_not_start(index: Path) -> None:
    assert "merge" in refused(index, "--backend", "shards", "--merge", "best")


async def test_shards_and_replicas_of_real_servers(tmp_path: Path) -> None:
    halves = [RECORDS[:3], RECORDS[3:]]
    with ExitStack() as stack:
        urls = []
        for number, half in enumerate(halves):
            build(write_lines(tmp_path / f"{number}.jsonl", half), tmp_path / f"index{number}")
            urls.append(f"{stack.enter_context(serving(tmp_path / f'index{number}'))}/retrieve")
        gone = "http://127.0.0.1:9/retrieve"
        sources = [f"{gone},{urls[0]}", urls[1]]
        async with open_backend("shards", sources, BackendOptions()) as backend:
            for _ in range(4):
                found, _ = await backend.retriever.search(["Lima", "yellow metal", "Tokyo organ"], 2, 60)
                assert [[hit.id for hit in hits] for hits in found[:2]] == [["peru"], ["gold"]]
                assert {hit.id for hit in found[2]} == {"tokyo", "heart"}
        tool = SearchTool({"retrieval_service_url": [gone, urls[0]], "topk": 1})
        response, _, metrics = await tool.execute("i", {"query_list": ["Lima"]})
        await tool.aclose()
        assert metrics["hits"] == 1
        assert response.text is not None
        assert "Its capital is Lima" in response.text
    with pytest.raises(InfraError):
        async with open_backend("shards", sources, BackendOptions()) as backend:
            await backend.retriever.search(["Lima"], 2, 1)


async def test_the_search_tool_over_an_index(index: Path) -> None:
    tool = SearchTool({"index": str(index), "backend": "hybrid", "topk": 1, "backend_options": {"device": "cpu"}})
    response, _, metrics = await tool.execute("i", {"query_list": ["musicians from the UK", "element 79"]})
    again, _, cached = await tool.execute("i", {"query_list": ["element 79"]})
    await tool.aclose()
    assert response.text is not None
    assert [part.splitlines()[0] for part in response.text.split("\n---\n")] == [
        'Doc 1 (Title: "The Who")',
        'Doc 1 (Title: "Gold")',
    ]
    assert metrics == {"hits": 2, "retries": 0, "cached": False}
    assert cached["cached"] is True
    assert again.text == response.text.split("\n---\n")[1]


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"backend": "dense"}, "need index or backend_sources"),
        ({"index": "x", "backend": "annoy"}, "must be one of bm25, dense"),
        ({"backend_sources": ["http://h:9200/i"]}, "backend_sources needs backend"),
        ({"index": "x", "corpus": "y"}, "give one of"),
        ({"index": "x", "backend_options": {"treads": 1}}, "treads"),
        ({"retrieval_service_url": ["http://h/r", "h/r"]}, "retrieval_service_url.1"),
    ],
)
def test_settings_of_the_tool_that_are_wrong(config: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        SearchTool(config)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("name", "sources"),
    [
        ("remote", ["http://user:secret@127.0.0.1:9/retrieve", "http://user:secret@127.0.0.1:9/r"]),
        ("shards", ["http://user:secret@127.0.0.1:9/retrieve,http://user:secret@127.0.0.1:9/r"]),
    ],
)
async def test_passwords_in_addresses_are_not_shown(name: str, sources: list[str]) -> None:
    async with open_backend(name, sources, BackendOptions()) as backend:
        shown = json.dumps(backend.info())
        with pytest.raises(InfraError) as caught:
            await backend.retriever.search(["Lima"], 1, 0.5)
    assert "127.0.0.1:9/retrieve" in shown
    assert "secret" not in shown + str(caught.value)


async def test_an_opening_that_failed_is_tried_again(index: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    lazy = LazyBackend("", [str(link)])
    with pytest.raises(ConfigError, match="there is no such folder"):
        await lazy.search(["Lima"], 1, 60)
    link.symlink_to(index)
    [[hit]], _ = await lazy.search(["Lima"], 1, 60)
    assert hit.id == "peru"
    await lazy.aclose()


def test_the_backends() -> None:
    assert sorted(BACKENDS) == ["bm25", "dense", "elasticsearch", "hybrid", "qdrant", "remote", "shards"]
