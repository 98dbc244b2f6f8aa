"""The search tool: over the shipped corpus, and against a retrieval service that fails in every way we have seen."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from rollbox.retrieval import http_service, shared_index
from rollbox.retrieval.bm25 import Bm25Index
from rollbox.retrieval.cache import CachedRetriever
from rollbox.retrieval.remote import RemoteRetriever
from rollbox.schemas.errors import ConfigError, ErrorKind, InfraError, OverloadedError, ToolError
from rollbox.schemas.tool import ToolCall
from rollbox.tools.base import CallContext
from rollbox.tools.dispatch import ToolBox
from rollbox.tools.search import SearchTool

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class FakeService:
    """A real HTTP server; `replies` are used in turn, the last one for ever."""

    def __init__(self) -> None:
        self.replies: list[Handler] = []
        self.requests: list[Any] = []
        app = web.Application()
        app.router.add_post("/retrieve", self._answer)
        self.server = TestServer(app)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(await request.json())
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        return await reply(request)


def says(body: Any, status: int = 200, content_type: str = "application/json", **headers: str) -> Handler:
    async def reply(request: web.Request) -> web.StreamResponse:
        text = body if isinstance(body, str) else json.dumps(body)
        return web.Response(text=text, status=status, content_type=content_type, headers=headers)

    return reply


async def hangs(request: web.Request) -> web.StreamResponse:
    await asyncio.sleep(60)
    raise AssertionError("the client should have hung up")


async def breaks_off(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.close()
    return web.Response()


def hit(title: str, text: str, score: float = 1.0) -> dict[str, Any]:
    return {"document": {"id": "1", "contents": f'"{title}"\n{text}'}, "score": score}


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_service, "_FIRST_PAUSE_S", 0.001)


@pytest.fixture
async def service() -> AsyncIterator[FakeService]:
    fake = FakeService()
    await fake.server.start_server()
    yield fake
    await fake.server.close()


@pytest.fixture
async def remote_tool(service: FakeService) -> AsyncIterator[SearchTool]:
    tool = SearchTool({"retrieval_service_url": str(service.server.make_url("/retrieve")), "timeout": 20})
    yield tool
    await tool.aclose()


async def ask(tool: SearchTool, *queries: str, **kwargs: Any) -> str:
    response, reward, _ = await tool.execute("i", {"query_list": list(queries)}, **kwargs)
    assert reward == 0.0
    assert response.text is not None
    return response.text


# --- local -----------------------------------------------------------------------------------------------------------


async def test_the_shipped_corpus_is_the_default() -> None:
    text = await ask(SearchTool(), "What is the capital of Peru?")
    assert text.startswith('Doc 1 (Title: "Peru")\nPeru is a country')
    assert "Lima" in text
    assert text.count("(Title: ") == 3


async def test_several_queries_are_parted_by_a_line() -> None:
    first, second = (await ask(SearchTool({"topk": 1}), "capital of Peru", "capital of Kenya")).split("\n---\n")
    assert first.startswith('Doc 1 (Title: "Peru")')
    assert second.startswith('Doc 1 (Title: "Kenya")')


async def test_metrics_count_the_hits() -> None:
    _, _, metrics = await SearchTool({"topk": 2}).execute("i", {"query_list": ["capital", "zzzz"]})
    assert metrics == {"hits": 2, "retries": 0, "cached": False}


async def test_no_hits_are_said_plainly() -> None:
    assert await ask(SearchTool(), "zzzz") == 'No passages found for "zzzz".'


@pytest.mark.parametrize("parameters", ["capital of Peru", {"query_list": "capital of Peru"}])
async def test_a_bare_string_is_one_query(parameters: Any) -> None:
    response, _, _ = await SearchTool({"topk": 1}).execute("i", parameters)
    assert response.text is not None
    assert response.text.startswith('Doc 1 (Title: "Peru")')


@pytest.mark.parametrize(
    "parameters",
    [{}, {"query_list": []}, {"query_list": [3]}, {"query_list": None}, {"query_list": ["ok", " "]}, "", [],
     {"query_list": ["q"] * 17}, {"query_list": ["q" * 2001]}],
)  # fmt: skip
async def test_unusable_arguments(parameters: Any) -> None:
    with pytest.raises(ToolError) as caught:
        await SearchTool().execute("i", parameters)
    assert caught.value.kind is ErrorKind.ARGUMENTS


async def test_concurrent_first_calls_build_one_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = tmp_path / "c.jsonl"
    corpus.write_text('{"id": "1", "contents": "\\"A\\"\\nalpha"}')
    monkeypatch.chdir(tmp_path)
    builds = []
    real = Bm25Index.from_jsonl

    def counted(path: Path) -> Bm25Index:
        builds.append(path)
        return real(path)

    monkeypatch.setattr(shared_index.Bm25Index, "from_jsonl", counted)
    tools = [SearchTool({"corpus": str(corpus)}), SearchTool({"corpus": "c.jsonl"})]
    assert builds == []
    texts = await asyncio.gather(*(ask(tool, "alpha") for tool in tools * 20))
    assert set(texts) == {'Doc 1 (Title: "A")\nalpha'}
    assert builds == [corpus.resolve()]


async def test_a_failed_build_is_tried_again(tmp_path: Path) -> None:
    corpus = tmp_path / "later.jsonl"
    tool = SearchTool({"corpus": str(corpus)})
    with pytest.raises(ConfigError, match=r"later\.jsonl"):
        await ask(tool, "alpha")
    corpus.write_text('{"id": "1", "text": "alpha"}')
    assert await ask(tool, "alpha") == "Doc 1\nalpha"


async def test_a_passed_deadline_is_an_infra_error() -> None:
    context = CallContext("t", 0, time.monotonic() - 1)
    with pytest.raises(InfraError, match="deadline"):
        await ask(SearchTool(), "Peru", context=context)


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"corpus": "a.jsonl", "retrieval_service_url": "http://h/retrieve"}, "not both"),
        ({"retrieval_service_url": "h/retrieve"}, "retrieval_service_url"),
        ({"topk": 0}, "topk"),
        ({"serper_url": "http://h/search"}, "serper_url and api_key belong together"),
        ({"searxng_url": "http://h", "corpus": "a"}, "give one of corpus, searxng_url, not both"),
        ({"layout": "fancy"}, "layout"),
        ({"top_k": 3}, "top_k"),
    ],
)
def test_wrong_settings_are_named(config: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        SearchTool(config)


def test_the_constructor_opens_nothing() -> None:
    SearchTool({"corpus": "/nowhere/at/all.jsonl"})
    SearchTool({"retrieval_service_url": "http://127.0.0.1:9/retrieve", "num_workers": 4, "rate_limit": 8})


# --- remote ----------------------------------------------------------------------------------------------------------


async def test_the_wire_is_search_r1s(service: FakeService, remote_tool: SearchTool) -> None:
    service.replies = [says({"result": [[hit("Peru", "Lima."), hit("Chile", "Santiago.")], []]})]
    text = await ask(remote_tool, "capital of Peru", "zzzz")
    assert service.requests == [{"queries": ["capital of Peru", "zzzz"], "topk": 3, "return_scores": True}]
    assert text == (
        'Doc 1 (Title: "Peru")\nLima.\n\nDoc 2 (Title: "Chile")\nSantiago.\n---\nNo passages found for "zzzz".'
    )


async def test_documents_without_scores_are_taken(service: FakeService, remote_tool: SearchTool) -> None:
    service.replies = [says({"result": [[{"id": "1", "contents": '"Peru"\nLima.'}]]})]
    assert await ask(remote_tool, "q") == 'Doc 1 (Title: "Peru")\nLima.'


BAD_REPLIES = {
    "html 500": (says("<h1>oops</h1>", 500, "text/html"), "HTTP 500 text/html"),
    "bad gateway": (says("", 502), "HTTP 502"),
    "empty body": (says(""), "empty body"),
    "html 200": (says("<h1>hi</h1>", 200, "text/html"), "not JSON"),
    "not an object": (says([1]), "no list 'result'"),
    "fewer lists": (says({"result": []}), "one list for each of 1 queries"),
    "no contents": (says({"result": [[{"document": {"id": "7", "contents": ""}, "score": 1}]]}), "without contents"),
    "odd hit": (says({"result": [["x"]]}), "without document"),
    "odd score": (says({"result": [[{**hit("A", "a"), "score": "high"}]]}), "score"),
    "broken off": (breaks_off, "ServerDisconnected"),
}


@pytest.mark.parametrize(("reply", "named"), BAD_REPLIES.values(), ids=list(BAD_REPLIES))
async def test_lasting_faults_end_as_infra_errors_after_retries(
    service: FakeService, remote_tool: SearchTool, reply: Handler, named: str
) -> None:
    service.replies = [reply]
    with pytest.raises(InfraError, match=r"^search unavailable: ") as caught:
        await ask(remote_tool, "capital of Peru")
    assert named in str(caught.value)
    assert len(str(caught.value)) < 200
    assert caught.value.retries == 3
    assert len(service.requests) >= 4  # aiohttp itself repeats a request whose kept-alive connection broke


@pytest.mark.parametrize(("reply", "named"), BAD_REPLIES.values(), ids=list(BAD_REPLIES))
async def test_passing_faults_are_survived(
    service: FakeService, remote_tool: SearchTool, reply: Handler, named: str
) -> None:
    service.replies = [reply, says({"result": [[hit("Peru", "Lima.")]]})]
    response, _, metrics = await remote_tool.execute("i", {"query_list": ["q"]})
    assert response.text == 'Doc 1 (Title: "Peru")\nLima.'
    assert metrics == {"hits": 1, "retries": 1, "cached": False}


async def test_q01_a_bad_retriever_costs_its_call_and_nothing_else(
    cases: dict[str, Any], service: FakeService, unused_tcp_port: int
) -> None:
    case = cases["Q01"]["input"]
    kinds = {"HTTP 500 text/html": says("<h1>oops</h1>", 500, "text/html"), "HTTP 200 empty body": says("")}
    for described in case["server_replies"]:
        refused = described == "connection refused"
        service.replies = [next((reply for start, reply in kinds.items() if described.startswith(start)), hangs)]
        url = f"http://127.0.0.1:{unused_tcp_port}/retrieve" if refused else service.server.make_url("/retrieve")
        tool = SearchTool({"retrieval_service_url": str(url), "timeout": 0.5})
        tools = {"search": tool}
        async with ToolBox(tools).trajectory("t") as running:
            answer = await running.call(ToolCall(**case["call"]), turn=0, index=0)
        await tool.aclose()
        assert answer.record.error_kind is ErrorKind.INFRA, described
        assert answer.record.retries == (0 if "no reply" in described else 3)
        assert answer.record.executed
        assert answer.response.text == "The tool 'search' is unavailable at the moment."


async def test_a_refused_connection(unused_tcp_port: int) -> None:
    tool = SearchTool({"retrieval_service_url": f"http://127.0.0.1:{unused_tcp_port}/retrieve"})
    with pytest.raises(InfraError, match="search unavailable: ClientConnectorError") as caught:
        await ask(tool, "q")
    assert caught.value.retries == 3
    await tool.aclose()


@pytest.mark.parametrize("by_context", [False, True])
async def test_a_hanging_service_is_left_at_the_deadline(service: FakeService, by_context: bool) -> None:
    service.replies = [hangs]
    config = {"retrieval_service_url": str(service.server.make_url("/retrieve")), "timeout": 30 if by_context else 0.2}
    tool = SearchTool(config)
    context = CallContext("t", 0, time.monotonic() + (0.2 if by_context else 30))
    with pytest.raises(InfraError, match=r"no answer within 0\.(2|199|19\d) s"):
        await ask(tool, "q", context=context)
    await tool.aclose()


async def test_a_full_queue_is_overload(service: FakeService, remote_tool: SearchTool) -> None:
    service.replies = [says("", 429, **{"Retry-After": "0.002"})]
    with pytest.raises(OverloadedError) as caught:
        await ask(remote_tool, "q")
    assert caught.value.retry_after_s == 0.002


async def test_a_wait_beyond_the_deadline_is_not_begun(service: FakeService, remote_tool: SearchTool) -> None:
    service.replies = [says("", 503, **{"Retry-After": "3600"})]
    with pytest.raises(InfraError, match="HTTP 503") as caught:
        await ask(remote_tool, "q")
    assert caught.value.retries == 0


async def test_a_wrong_address_is_not_retried(service: FakeService) -> None:
    tool = SearchTool({"retrieval_service_url": str(service.server.make_url("/wrong"))})
    with pytest.raises(InfraError, match="HTTP 404") as caught:
        await ask(tool, "q")
    assert caught.value.retries == 0
    await tool.aclose()


async def test_calls_share_one_session_and_close_it(service: FakeService, remote_tool: SearchTool) -> None:
    service.replies = [says({"result": [[]]})]
    await asyncio.gather(*(ask(remote_tool, "q") for _ in range(20)))
    assert isinstance(remote_tool._service, CachedRetriever)
    client = remote_tool._service._inner
    assert isinstance(client, RemoteRetriever)
    session = client._session()
    assert client._session() is session
    await remote_tool.aclose()
    assert session.closed
    await ask(remote_tool, "q")  # and opens a new one when called again


@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        ("verl", 'Doc 1 (Title: "Peru")\nLima.\n\nDoc 2\nNo title.\n---\nNo passages found for "b".'),
        (
            "search_r1",
            '<information>Doc 1(Title: "Peru") Lima.\nDoc 2 No title.\nNo passages found for "b".</information>',
        ),
        ("plain", 'Doc 1: Lima.\nDoc 2: No title.\n---\nNo passages found for "b".'),
    ],
)
async def test_layouts(service: FakeService, layout: str, expected: str) -> None:
    service.replies = [says({"result": [[hit("Peru", "Lima."), {"contents": "No title."}], []]})]
    tool = SearchTool({"retrieval_service_url": str(service.server.make_url("/retrieve")), "layout": layout})
    assert await ask(tool, "a", "b") == expected
    await tool.aclose()


async def test_a_repeated_query_is_answered_from_the_cache(service: FakeService, remote_tool: SearchTool) -> None:
    service.replies = [says({"result": [[hit("Peru", "Lima.")]]})]
    await ask(remote_tool, "capital of Peru")
    response, _, metrics = await remote_tool.execute("i", {"query_list": [" capital  of Peru "]})
    assert response.text == 'Doc 1 (Title: "Peru")\nLima.'
    assert metrics == {"hits": 1, "retries": 0, "cached": True}
    assert len(service.requests) == 1


async def test_queries_asked_at_the_same_time_are_asked_once(service: FakeService, remote_tool: SearchTool) -> None:
    service.replies = [says({"result": [[hit("A", "a")], [hit("B", "b")]]}), says({"result": [[hit("C", "c")]]})]
    texts = await asyncio.gather(ask(remote_tool, "a", "b"), ask(remote_tool, "b", "c", "b"), ask(remote_tool, "a"))
    assert [request["queries"] for request in service.requests] == [["a", "b"], ["c"]]
    assert texts[1].count('(Title: "B")') == 2
    assert texts[2] == 'Doc 1 (Title: "A")\na'


async def test_failures_are_not_remembered(service: FakeService, remote_tool: SearchTool) -> None:
    service.replies = [says("", 404), says({"result": [[hit("A", "a")]]})]
    with pytest.raises(InfraError):
        await ask(remote_tool, "a")
    assert await ask(remote_tool, "a") == 'Doc 1 (Title: "A")\na'


async def test_one_who_is_cancelled_does_not_take_the_answer_from_the_others(
    service: FakeService, remote_tool: SearchTool
) -> None:
    asked, may_answer = asyncio.Event(), asyncio.Event()

    async def waits(request: web.Request) -> web.StreamResponse:
        asked.set()
        await may_answer.wait()
        return await says({"result": [[hit("A", "a")]]})(request)

    service.replies = [waits]
    first, second = (asyncio.create_task(ask(remote_tool, "a")) for _ in range(2))
    await asked.wait()
    first.cancel()
    may_answer.set()
    assert await second == 'Doc 1 (Title: "A")\na'
    assert first.cancelled()


async def test_the_cache_forgets_what_is_old_and_what_is_too_much(
    service: FakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.replies = [says({"result": [[hit("A", "a")]]})]
    url = str(service.server.make_url("/retrieve"))
    tool = SearchTool({"retrieval_service_url": url, "cache_size": 2, "cache_ttl_sec": 0.000001})
    for query in ("a", "a"):
        await ask(tool, query)
    assert len(service.requests) == 2, "too old at once"
    await tool.aclose()
    tool = SearchTool({"retrieval_service_url": url, "cache_size": 2})
    for query in ("a", "b", "c", "b", "a"):
        await ask(tool, query)
    assert [request["queries"][0] for request in service.requests[2:]] == ["a", "b", "c", "a"]
    await tool.aclose()


async def test_passages_that_were_shown_are_left_out(service: FakeService) -> None:
    service.replies = [says({"result": [[hit("A", "a"), hit("B", "b")]]})]
    tool = SearchTool({"retrieval_service_url": str(service.server.make_url("/retrieve")), "skip_seen": True})
    async with ToolBox({"search": tool}).trajectory("t") as trajectory:
        answers = [
            await trajectory.call(ToolCall(name="search", arguments={"query_list": [query]}), i, 0)
            for i, query in enumerate(("one", "two"))
        ]
    assert 'Doc 2 (Title: "B")' in (answers[0].response.text or "")
    assert answers[1].response.text == 'No new passages for "two": you have seen all 2 already.'
    assert answers[1].record.metrics["skipped"] == 2
    async with ToolBox({"search": tool}).trajectory("another") as trajectory:
        again = await trajectory.call(ToolCall(name="search", arguments={"query_list": ["one"]}), 0, 0)
    assert 'Doc 1 (Title: "A")' in (again.response.text or "")
    assert again.record.cached
    await tool.aclose()
