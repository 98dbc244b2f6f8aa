"""Requests to equal servers over real HTTP: what is tried again, where, and for how long."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from hypothesis import example, given, settings

from rollbox.rollout.engines.http_client import EngineClient
from rollbox.rollout.engines.replicas import Replica, Replicas
from rollbox.rollout.engines.watch import watched
from rollbox.schemas.errors import ConfigError, EngineError
from rollbox.schemas.surrogates import without_lone_surrogates

from ..odd_texts import ODD_TEXTS, strict
from ..rewards.scoring_server import scripted_server

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Server:
    """Answers with what its script holds, then with its name; a status alone, `hang` or `drop` are failures."""

    def __init__(self, name: str, script: list[int | str] | None = None) -> None:
        self.name = name
        self.script = script or []
        self.seen: list[Any] = []
        self.hanging, self.left, self.probed = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.url = ""

    async def models(self, request: web.Request) -> web.StreamResponse:
        self.probed.set()
        return web.json_response({})

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.seen.append(await request.json())
        step = self.script.pop(0) if self.script else None
        if step == "hang":
            self.hanging.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.left.set()
        if step == "drop":
            assert request.transport is not None
            request.transport.abort()
        if isinstance(step, int):
            return web.Response(status=step, text="not now", headers={"Retry-After": "0"})
        return web.json_response({"from": self.name})


@asynccontextmanager
async def running(*servers: Server, **settings: Any) -> AsyncIterator[EngineClient]:
    async with AsyncExitStack() as stack:
        for server in servers:
            app = web.Application()
            app.add_routes([web.post("/x", server.answer), web.get("/v1/models", server.models)])
            started = await stack.enter_async_context(TestServer(app, handler_cancellation=True))
            server.url = str(started.make_url("")).rstrip("/")
        yield await stack.enter_async_context(EngineClient([server.url for server in servers], **settings))


@pytest.mark.parametrize("failure", [429, 500, 502, 503, "drop"])
async def test_a_passing_failure_is_tried_again(failure: int | str) -> None:
    server = Server("a", [failure, failure])
    async with running(server) as client:
        assert await client.post("/x", {"n": 1}, "t") == {"from": "a"}
    assert server.seen == [{"n": 1}] * 3


@settings(deadline=None, max_examples=30)
@given(ODD_TEXTS)
@example("\ud83d")
@example("\ud83d\ude00")
def test_any_text_is_sent_so_that_it_is_taken(text: str) -> None:
    async def ask() -> Any:
        async with scripted_server(strict(lambda body: body)) as server, EngineClient(server.url) as client:
            return await client.post("/x", {"messages": [{"content": text}], "prompt": [1, 2]}, "t")

    sent = without_lone_surrogates(text)
    assert asyncio.run(ask()) == {"messages": [{"content": sent}], "prompt": [1, 2]}


@pytest.mark.parametrize("status", [400, 401, 404, 422])
async def test_what_is_wrong_with_the_request_is_said_at_once(status: int) -> None:
    server = Server("a", [status])
    async with running(server) as client:
        with pytest.raises(EngineError, match=f"answered {status}: not now"):
            await client.post("/x", {}, "t")
    assert len(server.seen) == 1


async def test_a_server_that_stays_broken_is_given_up_with_its_last_words() -> None:
    server = Server("a", [500] * 1000)
    async with running(server, retry_s=0.3) as client:
        with pytest.raises(EngineError, match=r"answered 500: not now \(attempts: \d+\)") as error:
            await client.post("/x", {}, "t")
    assert error.value.retries == len(server.seen) - 1 > 0


async def test_a_full_server_is_waited_for_until_the_deadline() -> None:
    server = Server("a", [429] * 1000)
    async with running(server, retry_s=0.0, timeout_s=0.5) as client:
        with pytest.raises(EngineError, match=r"no answer to /x within 0.5 s; last failure: .* answered 429: not now"):
            await client.post("/x", {}, "t")


async def test_a_server_that_hangs_is_left_at_the_deadline() -> None:
    server = Server("a", ["hang"])
    async with running(server, timeout_s=0.3) as client:
        with pytest.raises(EngineError, match="no answer to /x within"):
            await client.post("/x", {}, "t")
        await server.left.wait()


async def test_the_requests_of_a_server_that_hangs_go_to_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that stands still keeps its connections, and takes new ones, by its kernel alone."""
    monkeypatch.setattr("rollbox.rollout.engines.watch.PROBE_S", 0.2)
    well = Server("well")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        async with running(well) as client:
            client.replicas.all.insert(0, Replica(f"http://127.0.0.1:{silent.getsockname()[1]}"))
            async with watched(client.replicas, client._session):
                asked = [asyncio.create_task(client.post("/x", {}, f"t{i}")) for i in range(8)]
                assert await asyncio.gather(*asked) == [{"from": "well"}] * 8
                hung = client.replicas.all[0]
                assert (hung.hangs, hung.outstanding, hung._requests) == (True, 0, set())
                # It is left out as long as it says nothing, and taken back when it does.
                assert {(await client.post("/x", {}, f"u{i}"))["from"] for i in range(8)} == {"well"}
                hung.heard()
                with client.replicas.lease("new") as chosen:
                    assert chosen is hung


async def test_a_server_that_is_slow_and_there_keeps_its_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rollbox.rollout.engines.watch.PROBE_S", 0.05)
    slow, other = Server("slow", ["hang"]), Server("other")
    async with running(slow, other) as client:
        held = asyncio.create_task(client.post("/x", {}, "t"))
        await slow.hanging.wait()
        for _ in range(2):
            await slow.probed.wait()
            slow.probed.clear()
        assert not held.done()
        assert not client.replicas.all[0].hangs
        held.cancel()
        await asyncio.gather(held, return_exceptions=True)


def test_one_that_lets_a_deadline_pass_in_silence_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as an engine that is stuck behind a front end that still says which models it has."""
    now = 100.0
    monkeypatch.setattr("rollbox.rollout.engines.replicas.time.monotonic", lambda: now)
    replicas = Replicas(["http://a", "http://b"])
    stuck, busy = replicas.all

    def waits_in_vain(server: Replica, answers_others: bool) -> None:
        nonlocal now
        with replicas.lease("t") as chosen:
            assert chosen is server
            now += 600.0
            if answers_others:
                server.heard()
            raise TimeoutError

    with pytest.raises(TimeoutError):
        waits_in_vain(stuck, False)
    with pytest.raises(TimeoutError):
        waits_in_vain(busy, True)
    assert replicas.any_well(but=stuck)
    with replicas.lease("t") as chosen:
        assert chosen is busy


async def test_cancelling_closes_the_connection() -> None:
    server = Server("a", ["hang"])
    async with running(server) as client:
        task = asyncio.create_task(client.post("/x", {}, "t"))
        await server.hanging.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.left.wait()
        assert [replica.outstanding for replica in client.replicas.all] == [0]


async def test_nobody_listens(unused_tcp_port: int) -> None:
    async with EngineClient(f"http://127.0.0.1:{unused_tcp_port}", retry_s=0.1) as client:
        with pytest.raises(EngineError, match=r"ClientConnectorError: Cannot connect.*attempts"):
            await client.post("/x", {}, "t")
        with pytest.raises(ConfigError, match=r"no usable answer from http.*Cannot connect"):
            await client.get_from_all("/x")


async def test_a_closed_client_says_so() -> None:
    with pytest.raises(EngineError, match="use it inside"):
        await EngineClient("http://127.0.0.1:9").post("/x", {}, "t")


async def test_another_server_takes_over_and_keeps_the_trajectory() -> None:
    sick, well = Server("sick", ["drop"] * 100), Server("well")
    async with running(sick, well, retry_s=5.0) as client:
        answers = [await client.post("/x", {}, "t") for _ in range(3)]
    assert answers == [{"from": "well"}] * 3
    assert (len(sick.seen), len(well.seen)) == (1, 3)


async def test_a_trajectory_stays_where_its_prefix_is() -> None:
    servers = [Server("a"), Server("b"), Server("c")]
    async with running(*servers) as client:
        homes = {key: [(await client.post("/x", {}, key))["from"] for _ in range(4)] for key in ("t", "u", "v")}
    assert all(len(set(answers)) == 1 for answers in homes.values())


async def test_new_trajectories_go_where_least_is_outstanding() -> None:
    busy, idle = Server("busy", ["hang"] * 3), Server("idle")
    async with running(busy, idle) as client:
        held = asyncio.create_task(client.post("/x", {}, "held"))
        await busy.hanging.wait()
        assert {(await client.post("/x", {}, f"t{i}"))["from"] for i in range(5)} == {"idle"}
        held.cancel()
        await asyncio.gather(held, return_exceptions=True)


def test_a_sick_server_comes_back_later_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("rollbox.rollout.engines.replicas.time.monotonic", lambda: now)
    replicas = Replicas(["http://a", "http://b"])
    first, second = replicas.all
    waits = []
    for _ in range(7):
        first.failed()
        first.failed()  # in flight at the same time: the same fault
        with replicas.lease("new") as chosen:
            assert chosen is second
        waits.append(first.ejected_until - now)
        now = first.ejected_until
    assert waits == [1, 2, 4, 8, 16, 30, 30]
    first.succeeded()
    assert replicas.any_well()


def test_with_none_well_the_first_to_come_back_is_tried() -> None:
    replicas = Replicas(["http://a", "http://b"])
    first, second = replicas.all
    first.failed()
    second.failed()
    assert not replicas.any_well()
    with replicas.lease("t") as chosen:
        assert chosen is first


def test_addresses_are_checked_and_counted_once() -> None:
    client = EngineClient("http://a:1/v1, http://a:1/ ,https://b")
    assert [replica.url for replica in client.replicas.all] == ["http://a:1", "https://b"]
    with pytest.raises(ConfigError, match="'b' is not an address"):
        EngineClient(["http://a", "b"])
    with pytest.raises(ConfigError, match="no server address"):
        EngineClient([])
