"""The search tool against a retrieval service that fails in every way we have seen."""

import asyncio
import json
import math
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from rollbox.retrieval.cache import CachedRetriever
from rollbox.retrieval.services import http_service
from rollbox.retrieval.services.remote import RemoteRetriever
from rollbox.schemas.errors import ErrorKind, InfraError, OverloadedError
from rollbox.schemas.tool import ToolCall
from rollbox.tools.base import CallContext
from rollbox.tools.dispatch import ToolBox
from rollbox.tools.search import SearchTool

from .search_service import FakeService, Handler, ask, breaks_off, hangs, hit, says


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


async def test_a_service_that_gives_more_than_it_is_asked_for(service: FakeService, remote_tool: SearchTool) -> None:
    service.replies = [says({"result": [[hit("T", f"text {rank}") for rank in range(50)]]})]
    assert (await ask(remote_tool, "q")).count("Doc ") == 3


async def test_half_a_surrogate_pair_is_the_models_doing_and_no_fault(
    service: FakeService, remote_tool: SearchTool
) -> None:
    service.replies = [says({"result": [[]]})]
    text = await ask(remote_tool, "Peru \ud83d")
    assert text == 'No passages found for "Peru ?".'
    assert service.requests[0]["queries"] == ["Peru ?"]


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
    "nan": (says(json.dumps({"result": [[hit("A", "a", math.nan)]]})), "score that is no finite number"),
    "infinite": (
        says('{"result": [[{"id": "1", "contents": "a", "score": 1e999}]]}'),
        "score that is no finite number",
    ),
    "beyond a float": (says({"result": [[{**hit("A", "a"), "score": 10**400}]]}), "score that is no finite number"),
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


async def test_a_document_without_an_id_has_none(service: FakeService) -> None:
    service.replies = [says({"result": [[{"document": {"id": None, "contents": "Lima."}, "score": 1}]]})]
    retriever = RemoteRetriever(str(service.server.make_url("/retrieve")), 4)
    ((found,),), _ = await retriever.search(["Peru"], 1, 30)
    await retriever.aclose()
    assert found.id == ""
