"""Qdrant. No package carries the server: requests are read and answers written by the wire models of its own client,
which refuse what they do not know, and searched by the engine in memory that the client has."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from qdrant_client import QdrantClient
from qdrant_client.http import models

from rollbox.retrieval.backend import BackendOptions
from rollbox.retrieval.backends import open_backend
from rollbox.retrieval.dense.build import embedded_text
from rollbox.retrieval.dense.sentence_model import SentenceModel
from rollbox.retrieval.services import http_service
from rollbox.schemas.errors import ConfigError, InfraError

from .conftest import PASSAGES

pytestmark = pytest.mark.timeout(600)  # the first to need the model waits for ten CPU seconds of imports


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_service, "_FIRST_PAUSE_S", 0.001)


class Server:
    """The two routes that are needed, over the engine in memory."""

    def __init__(self, client: QdrantClient) -> None:
        self.client = client
        self.url = ""
        self.batches: list[int] = []
        self.keys: list[str | None] = []
        self.fails = 0

    async def describe(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if not self.client.collection_exists(name):
            return web.json_response(
                {"status": {"error": f"Not found: Collection `{name}` doesn't exist!"}}, status=404
            )
        return self._answer(self.client.get_collection(name).model_dump(mode="json", exclude_none=True))

    async def query(self, request: web.Request) -> web.Response:
        self.keys.append(request.headers.get("api-key"))
        if self.fails:
            self.fails -= 1
            return web.Response(status=503)
        batch = models.QueryRequestBatch.model_validate(await request.json())
        self.batches.append(len(batch.searches))
        found = self.client.query_batch_points(request.match_info["name"], requests=batch.searches)
        return self._answer([each.model_dump(mode="json") for each in found])

    def _answer(self, result: Any) -> web.Response:
        return web.json_response({"result": result, "status": "ok", "time": 0.001})


@asynccontextmanager
async def served(client: QdrantClient) -> AsyncIterator[Server]:
    server = Server(client)
    app = web.Application()
    app.router.add_get("/collections/{name}", server.describe)
    app.router.add_post("/collections/{name}/points/query/batch", server.query)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield server
    await runner.cleanup()


@pytest.fixture(scope="module")
def wiki(embedder: SentenceModel) -> QdrantClient:
    client = QdrantClient(":memory:")
    texts = [embedded_text(passage, "") for passage in PASSAGES]
    vectors, _ = asyncio.run(embedder.embed(texts, 60))
    plain = models.VectorParams(size=vectors.shape[1], distance=models.Distance.COSINE)
    client.create_collection("wiki", vectors_config=plain)
    client.create_collection("named", vectors_config={"text": plain})
    client.create_collection("small", vectors_config=models.VectorParams(size=8, distance=models.Distance.DOT))
    payloads = [{"id": passage.id, "title": passage.title, "text": passage.text} for passage in PASSAGES]
    for name, wrap in (("wiki", lambda row: row), ("named", lambda row: {"text": row})):
        points = [
            models.PointStruct(id=number, vector=wrap(row.tolist()), payload=payload)
            for number, (row, payload) in enumerate(zip(vectors, payloads, strict=True))
        ]
        client.upsert(name, points)
    return client


@pytest.fixture
def options(model_dir: str) -> BackendOptions:
    return BackendOptions(embedding_model=model_dir, device="cpu")


async def test_what_is_meant_is_found(wiki: QdrantClient, options: BackendOptions) -> None:
    async with served(wiki) as server, open_backend("qdrant", [f"{server.url}/wiki"], options) as backend:
        (organ, blank, metal), _ = await backend.retriever.search(
            ["which part of me beats?", " ", "yellow element"], 2, 60
        )
    assert (organ[0].id, organ[0].title, organ[0].text) == ("heart", "Heart", PASSAGES[3].text)
    assert [hit.id for hit in metal][:1] == ["gold"]
    assert 1 >= metal[0].score > metal[1].score
    assert blank == []
    assert server.batches == [2]


async def test_named_vectors(wiki: QdrantClient, options: BackendOptions) -> None:
    named = options.model_copy(update={"vector": "text"})
    async with served(wiki) as server:
        async with open_backend("qdrant", [f"{server.url}/named"], named) as backend:
            [[hit]], _ = await backend.retriever.search(["musicians from the UK"], 1, 60)
        assert hit.id == "who"
        with pytest.raises(ConfigError, match="has vectors named 'text'; name one"):
            async with open_backend("qdrant", [f"{server.url}/named"], options):
                pass
        with pytest.raises(ConfigError, match="has no vectors named 'image'"):
            async with open_backend("qdrant", [f"{server.url}/named"], options.model_copy(update={"vector": "image"})):
                pass


async def test_another_dimension_is_refused_at_start_up(wiki: QdrantClient, options: BackendOptions) -> None:
    async with served(wiki) as server:
        with pytest.raises(ConfigError, match="holds vectors of 8 numbers, the embedding model gives 384"):
            async with open_backend("qdrant", [f"{server.url}/small"], options):
                pass


async def test_a_collection_that_is_not_there(wiki: QdrantClient, options: BackendOptions) -> None:
    async with served(wiki) as server:
        with pytest.raises(InfraError, match="Collection `gone` doesn't exist"):
            async with open_backend("qdrant", [f"{server.url}/gone"], options):
                pass


async def test_a_passing_failure_and_the_key(
    wiki: QdrantClient, options: BackendOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROLLBOX_QDRANT_KEY", "secret")
    async with served(wiki) as server, open_backend("qdrant", [f"{server.url}/wiki"], options) as backend:
        server.fails = 2
        [[hit]], retries = await backend.retriever.search(["internet protocol"], 1, 60)
    assert (hit.id, retries) == ("tcp", 2)
    assert set(server.keys) == {"secret"}


@pytest.mark.parametrize(
    ("sources", "options", "says"),
    [
        (["http://host:6333/wiki"], BackendOptions(), "embedding_model is missing"),
        (["/a/folder"], BackendOptions(embedding_model="m"), "needs one address"),
        (["http://host:6333/wiki"], BackendOptions(embedding_model="no/where"), "nothing is downloaded"),
    ],
)
async def test_settings_that_are_wrong(sources: list[str], options: BackendOptions, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        async with open_backend("qdrant", sources, options):
            pass
