"""A retrieval service that answers as it is told, and the question of a search tool."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

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


async def ask(tool: SearchTool, *queries: str, **kwargs: Any) -> str:
    response, reward, _ = await tool.execute("i", {"query_list": list(queries)}, **kwargs)
    assert reward == 0.0
    assert response.text is not None
    return response.text
