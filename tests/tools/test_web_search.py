"""Web search engines of SearXNG's and Serper's shape, as real HTTP servers; also their bad days."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from rollbox.retrieval.services import http_service
from rollbox.schemas.errors import InfraError, OverloadedError
from rollbox.tools.search import SearchTool


class Engine:
    """Answers `answers` in turn, the last one for ever; an integer is a status."""

    def __init__(self) -> None:
        self.answers: list[Any] = []
        self.requests: list[dict[str, Any]] = []
        app = web.Application()
        app.router.add_route("*", "/search", self._answer)
        self.server = TestServer(app)

    async def _answer(self, request: web.Request) -> web.Response:
        body = await request.json() if request.method == "POST" else dict(request.query)
        self.requests.append({"method": request.method, "key": request.headers.get("X-API-KEY"), **body})
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return web.Response(status=answer) if isinstance(answer, int) else web.json_response(answer)

    @property
    def url(self) -> str:
        return str(self.server.make_url("/search"))


@pytest.fixture
async def engine(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Engine]:
    monkeypatch.setattr(http_service, "_FIRST_PAUSE_S", 0.001)
    made = Engine()
    await made.server.start_server()
    yield made
    await made.server.close()


SEARXNG = {
    "results": [
        {"url": "u1", "title": "Peru", "content": "The capital\n is  Lima."},
        {"url": "u2", "title": None, "content": ""},
        {"url": "u3", "title": "Only a title"},
        {"url": "u4", "title": "Fourth", "content": "text"},
    ]
}
SERPER = {
    "answerBox": {"title": "Peru / Capital", "answer": "Lima", "link": "u0"},
    "organic": [{"link": "u1", "title": "Peru", "snippet": "A country."}, {"link": "u2", "title": "B", "snippet": "b"}],
}


def tool_of(engine: Engine, kind: str, **config: Any) -> SearchTool:
    key = {"api_key": "secret"} if kind == "serper" else {}
    return SearchTool({f"{kind}_url": engine.url, "topk": 2, "timeout": 10, **key, **config})


async def ask(tool: SearchTool, *queries: str) -> tuple[str, dict[str, Any]]:
    try:
        response, _, metrics = await tool.execute("i", {"query_list": list(queries)})
    finally:
        await tool.aclose()
    assert response.text is not None
    return response.text, metrics


async def test_searxng(engine: Engine) -> None:
    engine.answers = [SEARXNG]
    text, metrics = await ask(tool_of(engine, "searxng"), "capital of Peru")
    assert text == 'Doc 1 (Title: "Peru")\nThe capital is Lima.\n\nDoc 2 (Title: "Only a title")\nOnly a title'
    assert engine.requests == [{"method": "GET", "key": None, "q": "capital of Peru", "format": "json"}]
    assert metrics["hits"] == 2


async def test_serper(engine: Engine) -> None:
    engine.answers = [SERPER]
    text, _ = await ask(tool_of(engine, "serper"), "capital of Peru")
    assert text == 'Doc 1 (Title: "Peru / Capital")\nLima\n\nDoc 2 (Title: "Peru")\nA country.'
    assert engine.requests == [{"method": "POST", "key": "secret", "q": "capital of Peru", "num": 2}]


@pytest.mark.parametrize("kind", ["searxng", "serper"])
async def test_several_queries_are_several_requests(engine: Engine, kind: str) -> None:
    engine.answers = [{}]
    text, _ = await ask(tool_of(engine, kind), "a", "b c")
    assert text == 'No passages found for "a".\n---\nNo passages found for "b c".'
    assert sorted(request["q"] for request in engine.requests) == ["a", "b c"]


@pytest.mark.parametrize("kind", ["searxng", "serper"])
async def test_passing_faults_are_survived(engine: Engine, kind: str) -> None:
    engine.answers = [500, 429, SERPER | SEARXNG]
    text, metrics = await ask(tool_of(engine, kind), "a")
    assert text.startswith("Doc 1")
    assert metrics["retries"] == 2


@pytest.mark.parametrize(
    ("answer", "said"),
    [(503, "HTTP 503"), (403, "HTTP 403"), ([], "no list"), ({"results": 3, "organic": 3}, "no list"),
     ({"results": ["x"], "organic": ["x"]}, "is no object")],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["searxng", "serper"])
async def test_lasting_faults_are_ours(engine: Engine, kind: str, answer: Any, said: str) -> None:
    engine.answers = [answer]
    with pytest.raises(InfraError, match=said):
        await ask(tool_of(engine, kind), "a")


async def test_a_full_quota_is_overload(engine: Engine) -> None:
    engine.answers = [429]
    with pytest.raises(OverloadedError):
        await ask(tool_of(engine, "serper"), "a")


def test_the_key_is_not_shown() -> None:
    tool = SearchTool({"serper_url": "http://h/search", "api_key": "secret"})
    assert "secret" not in repr(tool.config)
