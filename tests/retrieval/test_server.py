"""A search server over real HTTP: what it answers to every recipe's format, and to what is no request."""

from __future__ import annotations

import asyncio
import io
import json
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from hypothesis import example, given, settings

from rollbox.retrieval.services.remote import RemoteRetriever
from rollbox.schemas.surrogates import without_lone_surrogates

from ..odd_texts import ODD_TEXTS
from .corpora import build, refused, serving, write_lines

TOKEN = "correct-horse-battery-staple"
RECORDS: list[dict[str, Any]] = [
    {"id": "peru", "contents": '"Peru"\nLima is the capital of Perú.'},
    {"id": "kenya", "contents": "Kenya\nNairobi is the capital of Kenya, in Africa."},
    {"id": "tokyo", "contents": "東京は日本の首都です"},
    {"id": 7, "title": "Chile", "text": "Santiago is the capital of Chile."},
]
PERU = {"id": "peru", "contents": '"Peru"\nLima is the capital of Perú.'}
KENYA = {"id": "kenya", "contents": "Kenya\nNairobi is the capital of Kenya, in Africa."}
TOKYO = {"id": "tokyo", "contents": "東京は日本の首都です"}
CHILE = {"id": "7", "contents": '"Chile"\nSantiago is the capital of Chile.'}


def _ipv6_loopback() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("server")
    build(write_lines(folder / "c.jsonl", RECORDS), folder / "index")
    return folder / "index"


@pytest.fixture(scope="module")
def url(index: Path) -> Iterator[str]:
    with serving(index, "--max-queries", "64", "--max-hits", "200", "--max-body-mb", "1") as address:
        yield address


async def post(url: str, body: Any, path: str = "/retrieve", **options: Any) -> tuple[int, Any]:
    data = io.BytesIO(body if isinstance(body, bytes) else json.dumps(body).encode())
    async with aiohttp.ClientSession() as http, http.post(url + path, data=data, **options) as response:
        return response.status, await response.json()


async def test_the_answer_is_search_r1s_byte_by_byte(url: str) -> None:
    body = {"queries": ["Lima", "Nairobi"], "topk": 1, "return_scores": True}
    async with aiohttp.ClientSession() as http, http.post(f"{url}/retrieve", json=body) as response:
        raw = await response.read()
        assert response.content_type == "application/json"
    answer = json.loads(raw)
    scores = [hits[0]["score"] for hits in answer["result"]]
    assert all(isinstance(score, float) and score > 0 for score in scores)
    expected = {
        "result": [
            [{"document": document, "score": score}] for document, score in zip((PERU, KENYA), scores, strict=True)
        ]
    }
    assert raw == json.dumps(expected, ensure_ascii=False, separators=(",", ":")).encode()


@pytest.mark.parametrize(
    ("queries", "documents"),
    [
        (["Lima"], [[PERU]]),
        (["Lima", "Nairobi"], [[PERU], [KENYA]]),
        (["Lima", "Nairobi", "Santiago"], [[PERU], [KENYA], [CHILE]]),
        (["Lima", "unheard"], [[PERU], []]),
    ],
)
async def test_without_scores_documents_are_bare_for_any_number_of_queries(
    url: str, queries: list[str], documents: list[list[dict[str, str]]]
) -> None:
    for more in ({}, {"return_scores": False}):
        assert await post(url, {"queries": queries, **more}) == (200, {"result": documents})


async def test_top_k_is_three_by_default(url: str) -> None:
    for more in ({}, {"topk": None}):
        _, answer = await post(url, {"queries": ["capital"], **more})
        assert len(answer["result"][0]) == 3
    _, answer = await post(url, {"queries": ["capital"], "topk": 2})
    assert len(answer["result"][0]) == 2
    _, answer = await post(url, {"queries": ["capital"], "topk": 100})
    assert len(answer["result"][0]) == 3


async def test_skyrls_single_query(url: str) -> None:
    status, answer = await post(url, {"query": "Lima", "topk": 2, "return_scores": True})
    assert status == 200
    assert [hit["document"] for hit in answer["result"][0]] == [PERU]
    assert await post(url, {"query": "Lima"}) == (200, {"result": [[PERU]]})


@pytest.mark.parametrize("name", ["top_k", "k"])
async def test_rllms_single_query(url: str, name: str) -> None:
    _, answer = await post(url, {"query": "Lima", name: 5})
    (hit,) = answer.pop("results")
    assert answer == {"query": "Lima", "method": "bm25", "num_results": 1}
    assert {"id": hit["id"], "contents": hit["content"]} == PERU
    assert hit["score"] > 0


async def test_the_typed_call(url: str) -> None:
    status, answer = await post(url, {"queries": ["Santiago", ""], "top_k": 2}, "/v1/search")
    assert status == 200
    ((hit,), empty) = answer["results"]
    assert (hit["id"], hit["title"], hit["text"]) == ("7", "Chile", "Santiago is the capital of Chile.")
    assert (empty, answer["backend"], answer["retries"]) == ([], "bm25", 0)
    assert answer["queue_ms"] >= 0
    _, again = await post(url, {"queries": ["Santiago", ""], "top_k": 2}, "/v1/search")
    assert again["cached"] is True
    assert again["results"] == answer["results"]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", []),
        (" \t\n", []),
        ("*", []),
        ("NOT jazz AND (", []),
        ('what is: "AC/DC"?', []),
        ("\0", []),
        ("日本", [TOKYO]),
        ("PERU", [PERU]),
        ("lima\0lima", [PERU]),
        ("x" * 30_000 + " lima", [PERU]),
        ("\U0001f600 lima", [PERU]),
        (" ".join(f"w{i}" for i in range(5000)), []),
    ],
)
async def test_a_query_is_words_whatever_it_is(url: str, query: str, found: list[Any]) -> None:
    assert await post(url, {"queries": [query, "Lima"]}) == (200, {"result": [found, [PERU]]})


BAD_RETRIEVE: list[tuple[Any, str]] = [
    (b"", "JSON"),
    (b"{", "JSON"),
    (b"\xff\xfe", "JSON"),
    ([], "object"),
    ({}, "`queries`"),
    ({"queries": None}, "`queries`"),
    ({"queries": "Lima"}, "goes into `query`"),
    ({"queries": {"a": 1}}, "must be a list of strings"),
    ({"queries": []}, "queries: "),
    ({"queries": [["Lima"]]}, "queries.0: "),
    ({"queries": ["Lima", 3]}, "queries.1: "),
    ({"queries": ["Lima"], "query": "Lima"}, "one of `queries`"),
    ({"query": ["Lima"]}, "query: "),
    ({"queries": ["Lima"], "topk": 0}, "topk: "),
    ({"queries": ["Lima"], "topk": -1}, "topk: "),
    ({"queries": ["Lima"], "topk": 10**9}, "at most 100 passages per query"),
    ({"queries": ["Lima"], "topk": 10**30}, "topk"),
    ({"queries": ["Lima"], "topk": "many"}, "topk: "),
    ({"queries": ["Lima"], "topk": True}, "topk: must be a number, not a boolean"),
    ({"queries": ["Lima"], "topk": 1.5}, "topk: "),
    ({"queries": ["Lima"], "return_scores": "perhaps"}, "return_scores: "),
    ({"queries": ["Lima", "x" * 40_000]}, "queries.1: has 40000 characters: at most 32768"),
    ({"queries": ["Lima"] * 65}, "65 are too many: at most 64"),
    ({"queries": ["Lima"] * 5, "topk": 50}, "5 queries of 50 passages"),
    (b'{"queries": ["\\ud800"', "JSON"),
    (b'{"queries": ["\\ud800"], "topk": 0}', "topk: "),
    (b'{"queries": ' + b"[" * 10_000, "JSON"),
]  # fmt: skip


@settings(deadline=None, max_examples=40)
@given(ODD_TEXTS)
@example("\ud800")
@example("\ud83d\ude00")
def test_any_query_of_a_model_is_answered(url: str, text: str) -> None:
    """Recipes' clients pass on what the model wrote, and stop where the answer is none."""

    async def ask() -> None:
        status, answer = await post(url, {"queries": [f"Lima {text}", text], "topk": 1})
        assert (status, len(answer["result"])) == (200, 2)
        status, answer = await post(url, {"query": text, "k": 1})
        assert (status, answer["query"]) == (200, without_lone_surrogates(text))
        status, answer = await post(url, {"queries": [text]}, "/v1/search")
        assert (status, len(answer["results"])) == (200, 1)
        client = RemoteRetriever(f"{url}/retrieve", 1)
        hits, _ = await client.search([f"Lima {text}"], 1, 20)
        await client.aclose()
        assert len(hits) == 1

    asyncio.run(ask())


@pytest.mark.parametrize(("body", "said"), BAD_RETRIEVE, ids=[said for _, said in BAD_RETRIEVE])
async def test_what_is_no_request_is_told_why(url: str, body: Any, said: str) -> None:
    status, answer = await post(url, body)
    assert status == 422
    assert answer["kind"] == "arguments"
    assert said in answer["detail"]
    assert len(answer["detail"]) < 400


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"queries": ["Lima"], "topk": 3}, "topk: Extra inputs are not permitted (got 3); did you mean 'top_k'?"),
        ({"queries": ["Lima"], "timeout_s": 0}, "timeout_s: "),
        ({"queries": ["Lima"], "timeout_s": 31}, "timeout_s: at most 30 on this server"),
        ({"queries": ["Lima"], "timeout_s": "NaN"}, "timeout_s: "),
        ({"queries": ["Lima"], "client": "x" * 129}, "client: "),
    ],
)
async def test_the_typed_call_names_the_field_too(url: str, body: Any, said: str) -> None:
    status, answer = await post(url, body, "/v1/search")
    assert (status, answer["kind"]) == (422, "arguments")
    assert said in answer["detail"]


async def test_a_large_body_is_refused_unread(url: str) -> None:
    status, answer = await post(url, {"queries": ["x" * 1_200_000]})
    assert (status, answer["kind"]) == (413, "arguments")


async def test_a_client_that_goes_within_its_body_is_no_error(index: Path) -> None:
    with serving(index) as url:  # whose log must hold no traceback
        _, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        writer.write(b'POST /retrieve HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n{"queries"')
        await writer.drain()
        assert (await post(url, {"queries": ["Lima"]}))[0] == 200
        writer.close()
        await writer.wait_closed()
        assert (await post(url, {"queries": ["Lima"]}))[0] == 200


@pytest.mark.skipif(not _ipv6_loopback(), reason="needs ::1")
async def test_the_address_that_is_printed_can_be_asked(index: Path) -> None:
    with serving(index, "--host", "::1") as url:
        assert (await post(url, {"queries": ["Lima"]}))[0] == 200


async def test_wrong_paths_and_methods(url: str) -> None:
    async with aiohttp.ClientSession(url) as http:
        async with http.get("/nothing") as response:
            assert (response.status, (await response.json())["kind"]) == (404, "arguments")
        async with http.get("/retrieve") as response:
            assert (response.status, response.headers["Allow"]) == (405, "POST")


async def test_health_info_and_metrics(url: str, index: Path) -> None:
    async with aiohttp.ClientSession(url) as http:
        for path in ("/health", "/v1/health"):
            async with http.get(path) as response:
                assert await response.json() == {"status": "ok"}
        async with http.get("/v1/info") as response:
            info = await response.json()
    assert (info["backend"], info["passages"], info["index"]) == ("bm25", 4, str(index))
    assert (info["corpus"], info["folder_is"]) == ("unchanged", "current")
    assert info["limits"]["max_queries"] == 64
    before = await _metrics(url)
    await post(url, {"queries": ["Lima metrics", "unheard"]})
    await post(url, {"queries": ["Lima metrics"]})
    await post(url, {})
    await post(url, {"queries": ["Lima"], "topk": 101})
    after = await _metrics(url)

    def grown(name: str) -> float:
        return after.get(name, 0.0) - before.get(name, 0.0)

    assert grown("rollbox_search_requests_total") == 2
    assert grown("rollbox_search_queries_total") == 3
    assert grown("rollbox_search_empty_total") == 1
    assert grown('rollbox_search_errors_total{kind="arguments"}') == 1
    assert grown("rollbox_search_cache_hits_total") >= 1
    assert grown("rollbox_search_search_seconds_count") == 2
    assert after["rollbox_search_passages"] == 4


async def _metrics(url: str) -> dict[str, float]:
    async with aiohttp.ClientSession(url) as http, http.get("/metrics") as response:
        lines = (await response.text()).splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))}


async def test_a_server_may_serve_another(url: str) -> None:
    with serving(f"{url}/retrieve") as outer:
        assert await post(outer, {"queries": ["Lima", "", "Nairobi", "Santiago"]}) == (
            200,
            {"result": [[PERU], [], [KENYA], [CHILE]]},
        )
        async with aiohttp.ClientSession(outer) as http, http.get("/v1/info") as response:
            info = await response.json()
    assert (info["backend"], info["urls"]) == ("remote", [f"{url}/retrieve"])


def test_a_first_passage_of_signs_is_no_reason_not_to_start(tmp_path: Path) -> None:
    signs = [{"id": f"s{i}", "text": "★★★ — ★★★"} for i in range(5)]
    build(write_lines(tmp_path / "c.jsonl", [*signs, *RECORDS]), tmp_path / "index")
    with serving(tmp_path / "index") as address:
        assert address


async def test_with_a_token_all_but_health_is_closed(index: Path) -> None:
    with serving(index, env={"ROLLBOX_RETRIEVER_TOKEN": TOKEN}) as address:
        async with aiohttp.ClientSession(address) as http:
            for path in ("/health", "/v1/health"):
                async with http.get(path) as response:
                    assert response.status == 200
            for path in ("/v1/info", "/metrics", "/openapi.json"):
                async with http.get(path) as response:
                    assert response.status == 401
        for headers in ({}, {"Authorization": "Bearer wrong"}):
            assert (await post(address, {"queries": ["Lima"]}, headers=headers))[0] == 401
        shown = {"Authorization": f"Bearer {TOKEN}"}
        assert (await post(address, {"queries": ["Lima"]}, headers=shown))[0] == 200


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--host", "0.0.0.0"), "could read the whole index. Set ROLLBOX_RETRIEVER_TOKEN"),
        (("--backend", "bm52"), "there is no 'bm52'; did you mean 'bm25'?"),
        (("--backend", "remote"), "is no address, such as"),
        (("--slots", "0"), "retriever serve: slots: "),
        (("--threads", "0"), "retriever serve: options.threads: "),
        (("--weights", "nan"), "retriever serve: options.weights.0: "),
        (("--weights", "1", "--weights", "inf"), "retriever serve: options.weights.1: "),
        (("--weights", "-1"), "retriever serve: options.weights.0: "),
        (("--rank-constant", "inf"), "retriever serve: options.rank_constant: "),
    ],
)
def test_wrong_settings_are_one_line(index: Path, arguments: tuple[str, ...], said: str) -> None:
    assert said in refused(index, *arguments)


def test_a_remote_service_that_is_not_there_is_said_at_the_start(unused_tcp_port: int) -> None:
    said = refused(f"http://127.0.0.1:{unused_tcp_port}/retrieve", "--timeout-s", "2")
    assert "the retriever cannot start: search unavailable" in said


@pytest.mark.timeout(600)  # most of it is spent on thinking up requests
def test_schemathesis_finds_nothing(index: Path, tmp_path: Path) -> None:
    # A product of two limits cannot be said in a schema.
    with serving(index, "--max-hits", "10000000", "--max-queries", "64", "--max-query-chars", "500") as url:
        command = [sys.executable, "-m", "schemathesis.cli", "run", f"{url}/openapi.json"]
        options = ["--max-examples=30", "--seed=1", "--request-timeout=60", "--phases=examples,coverage,fuzzing"]
        result = subprocess.run([*command, *options], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 0, (result.stdout + result.stderr)[-4000:]


def test_every_route_is_described(url: str) -> None:
    with urllib.request.urlopen(f"{url}/openapi.json") as answer:
        schema = json.load(answer)
    assert set(schema["paths"]) >= {"/retrieve", "/v1/search", "/v1/info", "/metrics", "/health", "/v1/health"}
    for path in ("/retrieve", "/v1/search"):
        assert set(schema["paths"][path]["post"]["responses"]) >= {"200", "401", "413", "422", "429", "503"}
    assert schema["components"]["schemas"]["SearchRequest"]["properties"]["queries"]["maxItems"] == 64
