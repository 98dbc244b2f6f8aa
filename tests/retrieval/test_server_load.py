"""A search server that is full, slow, left by its clients, or told to end. Its engine is a service held back here."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from .corpora import COMMAND, serving


class HeldService:
    """A `/retrieve` that answers the probe at once, and everything else when it may."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.may_answer = asyncio.Event()
        self.probed = asyncio.Event()
        self.answers_probes = True
        self.status = 200
        self.gone = asyncio.Event()
        app = web.Application()
        app.router.add_post("/retrieve", self._answer)
        self.server = TestServer(app)

    @property
    def url(self) -> str:
        return str(self.server.make_url("/retrieve"))

    async def _answer(self, request: web.Request) -> web.Response:
        queries = (await request.json())["queries"]
        self.probed.set()
        if queries != ["capital of Peru"] or not self.answers_probes:
            self.asked.append(queries)
            try:
                await self.may_answer.wait()
            except asyncio.CancelledError:
                self.gone.set()
                raise
        if self.status != 200:
            return web.Response(status=self.status, headers={"Retry-After": "7"} if self.status == 429 else {})
        return web.json_response({"result": [[{"document": {"id": q, "contents": q}, "score": 1.0}] for q in queries]})


@pytest.fixture
async def service() -> AsyncIterator[HeldService]:
    held = HeldService()
    await held.server.start_server()
    yield held
    held.may_answer.set()
    await held.server.close()


async def search(url: str, *queries: str, **more: Any) -> tuple[int, Any, str | None]:
    async with aiohttp.ClientSession(url) as http, http.post("/v1/search", json={"queries": queries, **more}) as reply:
        return reply.status, await reply.json(), reply.headers.get("Retry-After")


async def load_is(url: str, **expected: int) -> None:
    """Wait until the server is as busy as that, which no event tells."""
    async with aiohttp.ClientSession(url) as http, asyncio.timeout(30):
        while True:
            async with http.get("/v1/info") as reply:
                load = (await reply.json())["load"]
            if all(load[name] == value for name, value in expected.items()):
                return
            await asyncio.sleep(0.01)


async def until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline_s, "the condition did not come true"
        await asyncio.sleep(0.01)


async def start(url: str, *queries: str, **more: Any) -> asyncio.Task[tuple[int, Any, str | None]]:
    return asyncio.create_task(search(url, *queries, **more))


@pytest.fixture
async def url(service: HeldService, request: pytest.FixtureRequest) -> AsyncIterator[str]:
    arguments = getattr(request, "param", ())
    around = serving(service.url, *arguments)
    yield await asyncio.to_thread(around.__enter__)
    service.may_answer.set()
    await asyncio.to_thread(around.__exit__, None, None, None)


@pytest.mark.parametrize("url", [("--slots", "1", "--queue", "1")], indirect=True)
async def test_a_full_queue_is_429_and_the_waiting_are_answered(service: HeldService, url: str) -> None:
    first = await start(url, "a")
    await load_is(url, in_work=1)
    second = await start(url, "b")
    await load_is(url, in_work=1, waiting=1)
    status, answer, retry_after = await search(url, "c")
    assert (status, answer["kind"]) == (429, "overloaded")
    assert int(retry_after or 0) >= 1
    service.may_answer.set()
    assert [(await task)[0] for task in (first, second)] == [200, 200]
    await load_is(url, in_work=0, waiting=0)


@pytest.mark.parametrize("url", [("--max-per-client", "1")], indirect=True)
async def test_a_client_has_no_more_than_its_share(service: HeldService, url: str) -> None:
    first = await start(url, "a", client="greedy")
    await load_is(url, in_work=1)
    status, answer, _ = await search(url, "b", client="greedy")
    assert status == 429
    assert "client 'greedy' may have 1 requests at a time" in answer["detail"]
    others = [await start(url, "c", client="modest"), await start(url, "d")]
    await load_is(url, in_work=3)
    service.may_answer.set()
    assert [(await task)[0] for task in (first, *others)] == [200] * 3


@pytest.mark.parametrize("url", [("--slots", "1", "--queue", "8")], indirect=True)
async def test_a_client_that_goes_frees_its_slot_and_ends_what_was_asked_for_it(service: HeldService, url: str) -> None:
    leaver = await start(url, "left")
    await until(lambda: service.asked == [["left"]])
    waiting = await start(url, "stays")
    await load_is(url, in_work=1, waiting=1)
    leaver.cancel()
    async with asyncio.timeout(30):
        await service.gone.wait()
    await until(lambda: ["stays"] in service.asked)
    service.may_answer.set()
    assert (await waiting)[0] == 200
    await load_is(url, in_work=0, waiting=0)


@pytest.mark.parametrize("url", [("--slots", "1", "--queue", "8")], indirect=True)
async def test_a_client_that_goes_leaves_the_queue(service: HeldService, url: str) -> None:
    first = await start(url, "a")
    await load_is(url, in_work=1)
    leavers = [await start(url, f"left {i}") for i in range(5)]
    await load_is(url, in_work=1, waiting=5)
    for leaver in leavers:
        leaver.cancel()
    await load_is(url, in_work=1, waiting=0)
    service.may_answer.set()
    assert (await first)[0] == 200
    assert service.asked == [["a"]]


async def test_who_asks_for_the_same_is_not_ended_by_one_that_goes(service: HeldService, url: str) -> None:
    leaver = await start(url, "same")
    await until(lambda: service.asked == [["same"]])
    stays = await start(url, "same")
    await load_is(url, in_work=2)
    leaver.cancel()
    await load_is(url, in_work=1)
    service.may_answer.set()
    status, answer, _ = await stays
    assert (status, answer["results"][0][0]["id"]) == (200, "same")
    assert service.asked == [["same"]]


@pytest.mark.parametrize("url", [("--slots", "1")], indirect=True)
async def test_a_deadline_ends_both_the_wait_and_the_search(service: HeldService, url: str) -> None:
    first = await start(url, "a")
    await load_is(url, in_work=1)
    status, answer, _ = await search(url, "b", timeout_s=0.2)
    assert (status, answer["kind"]) == (503, "infra")
    assert "no slot was free within 0.2 s" in answer["detail"]
    first.cancel()
    await load_is(url, in_work=0, waiting=0)
    status, answer, _ = await search(url, "c", timeout_s=0.2)
    assert (status, answer["kind"]) == (503, "infra")
    assert "no answer within 0.2 s" in answer["detail"]
    service.may_answer.set()
    assert (await search(url, "c"))[0] == 200


@pytest.mark.parametrize("url", [("--connections", "1")], indirect=True)
async def test_what_comes_while_the_engine_is_busy_is_asked_together(service: HeldService, url: str) -> None:
    first = await start(url, "first")
    await until(lambda: service.asked == [["first"]])
    others = [await start(url, f"q{i}") for i in range(20)]
    deeper = await start(url, "deeper", top_k=5)
    await load_is(url, in_work=22)
    service.may_answer.set()
    answers = [await task for task in (first, *others, deeper)]
    names = [f"q{i}" for i in range(20)]
    assert [answer["results"][0][0]["id"] for _, answer, _ in answers] == ["first", *names, "deeper"]
    assert sorted(map(sorted, service.asked)) == sorted([["first"], sorted(names), ["deeper"]])


async def test_a_failing_engine_is_503_and_a_full_one_429(service: HeldService, url: str) -> None:
    service.may_answer.set()
    service.status = 500
    status, answer, _ = await search(url, "a", timeout_s=20)
    assert (status, answer["kind"]) == (503, "infra")
    assert "HTTP 500" in answer["detail"]
    service.status = 429
    status, answer, retry_after = await search(url, "a", timeout_s=5)
    assert (status, answer["kind"], retry_after) == (429, "overloaded", "7")
    service.status = 200
    assert (await search(url, "a"))[0] == 200


async def test_sigterm_answers_what_is_in_work_and_takes_no_more(service: HeldService) -> None:
    command = [*COMMAND, "serve", service.url, "--port", "0"]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, env=dict(os.environ))
    assert process.stdout is not None
    url = (await process.stdout.readline()).decode().split()[-1]
    try:
        task = await start(url, "a")
        await until(lambda: service.asked == [["a"]])
        process.send_signal(signal.SIGTERM)
        await _refuses(url)
        service.may_answer.set()
        assert (await task)[0] == 200
        assert await asyncio.wait_for(process.wait(), 30) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _refuses(url: str) -> None:
    async with asyncio.timeout(30):
        while True:
            try:
                async with aiohttp.ClientSession(url) as http, http.get("/health"):
                    await asyncio.sleep(0.01)
            except aiohttp.ClientError:
                return


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_a_server_that_does_not_serve_yet(service: HeldService, number: int) -> None:
    service.answers_probes = False
    command = [*COMMAND, "serve", service.url, "--port", "0"]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(60):
        await service.probed.wait()
        process.send_signal(number)
        said, complained = await process.communicate()
    assert (process.returncode, said) == (0, b"")
    assert b"Traceback" not in complained


async def test_sigterm_does_not_wait_for_ever(service: HeldService) -> None:
    command = [*COMMAND, "serve", service.url, "--port", "0", "--drain-s", "1"]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    assert process.stdout is not None
    url = (await process.stdout.readline()).decode().split()[-1]
    task = await start(url, "a")
    await until(lambda: service.asked == [["a"]])
    process.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(process.wait(), 60) == 0
    with pytest.raises((aiohttp.ClientError, json.JSONDecodeError)):
        await task
