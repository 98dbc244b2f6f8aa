"""Elasticsearch and OpenSearch. No package carries either engine: a scripted server answers in the shape that their
`_msearch` documents, and checks that it is asked in it."""

import base64
import json
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from rollbox.retrieval.backend import BackendOptions
from rollbox.retrieval.backends import open_backend
from rollbox.retrieval.bm25 import Bm25Index
from rollbox.retrieval.services import http_service
from rollbox.retrieval.services.elasticsearch import ElasticsearchRetriever
from rollbox.schemas.errors import ConfigError, InfraError, OverloadedError

from .conftest import PASSAGES


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_service, "_FIRST_PAUSE_S", 0.001)


def response(hits: list[dict[str, Any]], status: int = 200, failed: int = 0) -> dict[str, Any]:
    return {
        "took": 1,
        "timed_out": False,
        "_shards": {"total": 1, "successful": 1 - failed, "skipped": 0, "failed": failed},
        "hits": {"max_score": 1.0, "hits": hits},
        "status": status,
    }


def hit(name: str, source: dict[str, Any], score: Any = 1.5) -> dict[str, Any]:
    return {"_index": "wiki", "_id": name, "_score": score, "_source": source}


def refused(status: int, kind: str) -> dict[str, Any]:
    return {"error": {"root_cause": [], "type": kind, "reason": f"{kind}: no"}, "status": status}


class Engine:
    """Answers each search by `answer(query, size)`."""

    def __init__(self, answer: Callable[[str, int], Any]) -> None:
        self.answer = answer
        self.asked: list[tuple[Any, Any]] = []
        self.headers: list[Any] = []
        self.url = ""

    async def handle(self, request: web.Request) -> web.Response:
        self.headers.append(request.headers)
        text = await request.text()
        assert request.content_type == "application/x-ndjson"
        assert text.endswith("\n")
        lines = [json.loads(line) for line in text.splitlines()]
        searches = list(zip(lines[::2], lines[1::2], strict=True))
        self.asked += searches
        answers = [self.answer(body["query"]["multi_match"]["query"], body["size"]) for _, body in searches]
        return web.json_response({"took": 3, "responses": answers})


@asynccontextmanager
async def engine(answer: Callable[[str, int], Any]) -> AsyncIterator[Engine]:
    server = Engine(answer)
    app = web.Application()
    app.router.add_post("/_msearch", server.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield server
    await runner.cleanup()


def searched(index: Bm25Index) -> Callable[[str, int], Any]:
    """Answers of a real index, in the engine's shape."""
    return lambda query, size: response(
        [hit(each.id, {"title": each.title, "text": each.text}, each.score) for each in index.search(query, size)]
    )


async def test_queries_become_one_msearch() -> None:
    async with engine(searched(Bm25Index.of(PASSAGES))) as server:
        client = ElasticsearchRetriever(f"{server.url}/wiki", 8)
        (peru, blank, none, metal), retries = await client.search(
            ["capital Lima", "  ", "unheard", "yellow metal"], 1, 20
        )
        await client.aclose()
    assert [peru[0].id, metal[0].id] == ["peru", "gold"]
    assert (peru[0].title, peru[0].text) == ("Peru", PASSAGES[0].text)
    assert peru[0].score > 0
    assert (blank, none, retries) == ([], [], 0)
    headers, bodies = zip(*server.asked, strict=True)
    assert headers == ({"index": "wiki"},) * 3
    assert [body["query"]["multi_match"] for body in bodies] == [
        {"query": query, "fields": ["title", "text", "contents"]}
        for query in ("capital Lima", "unheard", "yellow metal")
    ]
    assert {body["size"] for body in bodies} == {1}


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ({"contents": '"Peru"\nLima.'}, ("x", "Peru", "Lima.")),
        ({"id": "own", "title": None, "text": "Lima."}, ("own", "", "Lima.")),
    ],
)
async def test_both_forms_of_passages(source: dict[str, Any], shown: tuple[str, str, str]) -> None:
    async with engine(lambda query, size: response([hit("x", source)])) as server:
        client = ElasticsearchRetriever(f"{server.url}/wiki/", 8)
        [[found]], _ = await client.search(["q"], 1, 20)
        await client.aclose()
    assert (found.id, found.title, found.text) == shown


async def test_limits_of_the_engine_are_kept() -> None:
    async with engine(lambda query, size: response([])) as server:
        client = ElasticsearchRetriever(f"{server.url}/wiki", 8)
        await client.search(["word " * 5000], 10**9, 20)
        assert (await client.search(["q"], 0, 20))[0] == [[]]
        await client.aclose()
    [(_, body)] = server.asked
    assert body["size"] == 10_000
    assert len(body["query"]["multi_match"]["query"].split()) == 300


@pytest.mark.parametrize(
    ("answer", "says", "kind", "tries"),
    [
        (refused(404, "index_not_found_exception"), "index_not_found_exception", InfraError, 1),
        (refused(429, "es_rejected_execution_exception"), "status 429", OverloadedError, 4),
        (refused(503, "no_shard_available"), "status 503", InfraError, 4),
        (response([], failed=1), "1 shards failed", InfraError, 4),
        (response([hit("x", {"title": "only"})]), "document 'x': contents", InfraError, 1),
        (response([hit("x", {"text": "t"}, None)]), "a score that is no finite number", InfraError, 1),
        (response([hit("x", {"text": "t"}, math.nan)]), "a score that is no finite number", InfraError, 1),
        ({"status": 200}, "without hits", InfraError, 4),
        ("?", "no object", InfraError, 1),
    ],
)
async def test_a_query_that_fails_within_an_answer(answer: Any, says: str, kind: type, tries: int) -> None:
    async with engine(lambda query, size: answer) as server:
        client = ElasticsearchRetriever(f"{server.url}/wiki", 8)
        with pytest.raises(kind) as caught:
            await client.search(["q"], 1, 20)
        await client.aclose()
    assert says in str(caught.value)
    assert len(server.asked) == tries


async def test_keys_and_passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    async with engine(lambda query, size: response([])) as server:
        host = server.url.removeprefix("http://")
        client = ElasticsearchRetriever(f"http://user:pass@{host}/wiki", 8)
        await client.search(["q"], 1, 20)
        await client.aclose()
        monkeypatch.setenv("ROLLBOX_ELASTICSEARCH_KEY", "secret")
        client = ElasticsearchRetriever(f"{server.url}/wiki", 8)
        await client.search(["q"], 1, 20)
        await client.aclose()
    assert server.headers[0]["Authorization"] == "Basic " + base64.b64encode(b"user:pass").decode()
    assert server.headers[1]["Authorization"] == "ApiKey secret"


@pytest.mark.parametrize("url", ["http://host:9200", "http://host:9200/"])
def test_an_address_without_index(url: str) -> None:
    with pytest.raises(ConfigError, match="names no index"):
        ElasticsearchRetriever(url, 8)


async def test_as_a_backend_replicas_fail_over() -> None:
    async with (
        engine(searched(Bm25Index.of(PASSAGES))) as well,
        engine(lambda query, size: refused(503, "no_shard_available")) as sick,
    ):
        password = sick.url.replace("http://", "http://user:pass@")
        async with open_backend("elasticsearch", [f"{password}/wiki", f"{well.url}/wiki"], BackendOptions()) as backend:
            for _ in range(8):
                [[found]], _ = await backend.retriever.search(["Lima"], 1, 20)
                assert found.id == "peru"
            assert backend.info()["urls"][0] == f"{sick.url}/wiki"
            assert len(sick.asked) <= 1
