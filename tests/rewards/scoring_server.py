"""A real HTTP server whose answers a test scripts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

Answer = Callable[[str, dict[str, Any]], Any]


class ScriptedServer:
    """Attributes: seen: (path, body) of each request. answer: gives a body, a status, or (status, body, headers)."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.seen: list[tuple[str, Any]] = []
        self.in_flight = self.most_in_flight = 0
        self.gate: asyncio.Event | None = None
        self.url = ""
        self.headers: list[Any] = []

    async def handle(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.seen.append((request.path, body))
        self.headers.append(request.headers)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            if self.gate is not None:
                await self.gate.wait()
            answer = self.answer(request.path, body)
        finally:
            self.in_flight -= 1
        if isinstance(answer, int):
            return web.Response(status=answer, text="scripted")
        if isinstance(answer, tuple):
            return web.json_response(answer[1], status=answer[0], headers=answer[2])
        if isinstance(answer, str):
            return web.Response(text=answer)
        return web.json_response(answer)


@asynccontextmanager
async def scripted_server(answer: Answer) -> AsyncIterator[ScriptedServer]:
    server = ScriptedServer(answer)
    app = web.Application()
    app.router.add_post("/{path:.*}", server.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield server
    finally:
        if server.gate is not None:
            server.gate.set()
        await runner.cleanup()
