"""How sessions begin and end: ids, caps, expiry, lost processes and servers, repeated requests, many at a time."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from rollbox.sandbox.client import Sandbox
from rollbox.sandbox.session_client import SandboxSession
from rollbox.schemas.errors import ErrorKind, SandboxError, SessionLostError, ToolError
from rollbox.schemas.session import SessionRequest

from .server_process import ServerProcess, processes_with, serving, until


@pytest.fixture
async def session(sandbox: Sandbox) -> AsyncIterator[SandboxSession]:
    async with await sandbox.create_session() as opened:
        yield opened


async def _ask(server: ServerProcess, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    async with aiohttp.ClientSession(server.url) as http, http.request(method, path, json=body) as response:
        return response.status, json.loads(await response.text())


async def test_an_id_names_the_worker_and_is_a_secret(server: ServerProcess, session: SandboxSession) -> None:
    assert re.fullmatch(r"s0-[0-9a-f]{32}", session.id)
    status, listed = await _ask(server, "GET", "/v1/sessions")
    assert status == 200
    assert session.id not in json.dumps(listed)
    assert f"{session.id[:9]}…" in [each["id"] for each in listed["sessions"]]
    for guess in (
        f"{session.id[:9]}…",
        session.id[:-1],
        session.id.replace("s0-", "s1-"),
        "s0-" + "0" * 32,
        "x",
        "y",
    ):
        for method, path in (("GET", ""), ("POST", "/run"), ("DELETE", "")):
            body = {"code": "1"} if path else None
            status, answer = await _ask(server, method, f"/v1/sessions/{guess}{path}", body)
            assert (status, answer["kind"]) == (404, "infra"), answer
            assert "before this server was last started" in answer["detail"]


async def test_the_list_can_be_of_one_client(server: ServerProcess, sandbox: Sandbox) -> None:
    async with await sandbox.create_session(SessionRequest(client="it is me")) as session:
        _, listed = await _ask(server, "GET", "/v1/sessions?client=it+is+me")
        assert [each["client"] for each in listed["sessions"]] == ["it is me"]
        _, info = await _ask(server, "GET", f"/v1/sessions/{session.id}")
        assert (info["status"], info["cells"], info["tier"]) == ("idle", 0, "bare")
        cell = asyncio.create_task(session.run("import time; time.sleep(30)", wall_s=30))
        await until_running(session)
        assert (await session.info()).cells == 1
        cell.cancel()


async def until_running(session: SandboxSession) -> None:
    while (await session.info()).status != "running":
        pass


async def test_a_closed_session_is_gone(server: ServerProcess, session: SandboxSession) -> None:
    copies = await session.fork(2)
    await session.close()
    await session.close()
    status, answer = await _ask(server, "POST", f"/v1/sessions/{session.id}/run", {"code": "1"})
    assert (status, answer["kind"]) == (410, "user_code")
    assert "closed by its client" in answer["detail"]
    for each in copies:
        assert (await each.run("1")).last_expression == "1"
        await each.close()


async def test_closing_ends_the_cell_that_runs(sandbox: Sandbox) -> None:
    session = await sandbox.create_session()
    cell = asyncio.create_task(session.run("import subprocess; subprocess.run(['sleep', '6543.5'])", wall_s=60))
    await until(lambda: len(processes_with("6543.5")) == 1)
    await session.close()
    with pytest.raises(ToolError, match="closed by its client"):
        await cell
    await until(lambda: processes_with("6543.5") == [])


async def test_idle_and_old_sessions_end() -> None:
    options = ("--session-idle-s", "1", "--session-lifetime-s", "3", "--slots", "2")
    with serving(*options) as server:
        async with Sandbox.connect(server.url) as sandbox:
            idle, used = [await sandbox.create_session() for _ in range(2)]
            short = await sandbox.create_session(SessionRequest(idle_s=0.2))
            ended = {}
            for _ in range(600):
                for name, each in (("used", used), ("idle", idle), ("short", short)):
                    if name not in ended:
                        try:
                            await (each.run("1") if name == "used" else each.info())
                        except SessionLostError as error:
                            ended[name] = str(error)
                await asyncio.sleep(0.01)
                if len(ended) == 3:
                    break
            assert ended == {
                "used": "the session is gone: it lived for 3 s, the most on this server",
                "idle": "the session is gone: it was idle for 1 s",
                "short": "the session is gone: it was idle for 0.2 s",
            }


async def test_a_session_that_runs_is_not_idle() -> None:
    with serving("--session-idle-s", "0.5", "--slots", "2") as server:
        async with Sandbox.connect(server.url) as sandbox, await sandbox.create_session() as session:
            assert (await session.run("import time; time.sleep(1.5); 'done'")).last_expression == "'done'"


def _zygotes(server: ServerProcess) -> list[int]:
    with open(f"/proc/{server.process.pid}/task/{server.process.pid}/children") as file:
        spawners = file.read().split()
    found = []
    for spawner in spawners:
        with open(f"/proc/{spawner}/task/{spawner}/children") as file:
            found += [int(pid) for pid in file.read().split()]
    return found


async def test_a_killed_supervisor_or_zygote_loses_its_sessions_only() -> None:
    with serving("--slots", "2") as server:
        async with Sandbox.connect(server.url) as sandbox:
            first, second = [await sandbox.create_session() for _ in range(2)]
            other = await sandbox.create_session(SessionRequest(packages=["numpy"]))
            await first.run("import subprocess; p = subprocess.Popen(['sleep', '5432.5'])")
            [inside] = processes_with("5432.5")
            os.kill(_supervisor(inside), signal.SIGKILL)
            await until(lambda: processes_with("5432.5") == [])
            with pytest.raises(SessionLostError, match="session_lost") as caught:
                await first.run("1")
            assert caught.value.kind is ErrorKind.INFRA
            assert (await second.run("2")).last_expression == "2"
            for each in (second, other):
                await each.run("import subprocess; p = subprocess.Popen(['sleep', '5432.5'])")
            [bare] = [pid for pid in _zygotes(server) if _supervisor_of_all(pid, processes_with("5432.5")[0])]
            os.kill(bare, signal.SIGKILL)
            await until(lambda: len(processes_with("5432.5")) == 1)
            outcomes = [await _outcome(each) for each in (second, other)]
            assert sorted(outcomes) == ["lost", "ok"]
            assert (await (await sandbox.create_session()).run("3")).last_expression == "3"


def _parent(pid: int) -> int:
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])


def _supervisor(pid: int) -> int:
    """The init of a session's slot: the head is its child."""
    return _parent(_parent(pid))


def _supervisor_of_all(zygote: int, pid: int) -> bool:
    while pid > 1:
        pid = _parent(pid)
        if pid == zygote:
            return True
    return False


async def _outcome(session: SandboxSession) -> str:
    try:
        return (await session.run("1")).status.value
    except SessionLostError:
        return "lost"


async def test_a_server_that_was_started_again_knows_no_sessions() -> None:
    with serving("--slots", "1") as server:
        async with Sandbox.connect(server.url) as sandbox:
            session = await sandbox.create_session()
    with serving("--slots", "1") as server:
        async with Sandbox.connect(server.url) as sandbox:
            elsewhere = SandboxSession(sandbox, (await (await sandbox.create_session()).info()), 1)
            elsewhere.id = session.id
            with pytest.raises(SessionLostError, match="before this server was last started") as caught:
                await elsewhere.run("1")
            assert isinstance(caught.value, SandboxError)


async def test_the_end_of_the_server_ends_its_sessions() -> None:
    for kill in (False, True):
        with serving("--slots", "1") as server:
            async with Sandbox.connect(server.url) as sandbox:
                session = await sandbox.create_session()
                await session.run("import subprocess; p = subprocess.Popen(['sleep', '4321.5'])")
                await until(lambda: len(processes_with("4321.5")) == 1)
                server.process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
                await until(lambda: processes_with("4321.5") == [])


async def test_a_repeated_key_runs_once(server: ServerProcess, session: SandboxSession) -> None:
    await session.run("n = 0")
    path, body = (
        f"/v1/sessions/{session.id}/run",
        {"code": "import time; time.sleep(0.2); n += 1; n", "idempotency_key": "k"},
    )
    answers = await asyncio.gather(*(_ask(server, "POST", path, body) for _ in range(4)))
    answers.append(await _ask(server, "POST", path, body))
    assert {(status, answer["last_expression"], answer["cell"]) for status, answer in answers} == {(200, "1", 2)}
    assert (await session.run("n")).last_expression == "1"
    status, answer = await _ask(server, "POST", path, body | {"code": "n"})
    assert (status, "used for another cell" in answer["detail"]) == (409, True)


async def test_cells_of_one_session_wait_for_their_turn(session: SandboxSession) -> None:
    await session.run("seen = []")
    codes = [f"import time; seen.append({n}); time.sleep(0.01); seen.append({n})" for n in range(6)]
    tasks = []
    for code in codes:
        tasks.append(asyncio.create_task(session.run(code)))
        await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    seen = json.loads((await session.run("seen")).last_expression or "")
    assert seen[::2] == seen[1::2]
    assert sorted(seen[::2]) == list(range(6))


async def test_many_sessions_at_a_time_keep_to_themselves(sandbox: Sandbox) -> None:
    async def one(number: int) -> None:
        async with await sandbox.create_session(SessionRequest(client=f"c{number % 7}")) as session:
            await session.run(f"x = {number}; open('mine', 'w').write('{number}')")
            if number % 3 == 0:
                await session.run("x = -1; open('mine', 'w').write('undone'); __import__('os')._exit(1)")
            if number % 5 == 0:
                [copy] = await session.fork(1)
                await copy.run("x = 'copy'; open('mine', 'w').write('copy')")
                assert (await copy.run("x, open('mine').read()")).last_expression == "('copy', 'copy')"
                await copy.close()
            assert (await session.run("x, open('mine').read()")).last_expression == f"({number}, '{number}')"

    await asyncio.gather(*(one(number) for number in range(40)))


async def test_workers_share_sessions() -> None:
    with serving("--slots", "4", "--workers", "2", "--max-sessions", "20") as server:
        async with Sandbox.connect(server.url) as sandbox:
            sessions = await asyncio.gather(*(sandbox.create_session() for _ in range(8)))
            workers = {session.id.partition("-")[0] for session in sessions}
            assert workers <= {"s0", "s1"}
            await asyncio.gather(*(each.run(f"x = {number}") for number, each in enumerate(sessions)))
        # On connections of its own, each of which may reach either worker.
        for number, session in enumerate(sessions):
            for _ in range(3):
                status, answer = await _ask(server, "POST", f"/v1/sessions/{session.id}/run", {"code": "x"})
                assert (status, answer["last_expression"]) == (200, str(number))
        _, listed = await _ask(server, "GET", "/v1/sessions")
        assert len(listed["sessions"]) == 8


async def test_metrics_count_sessions(server: ServerProcess, sandbox: Sandbox) -> None:
    async def metric(name: str) -> float:
        async with aiohttp.ClientSession(server.url) as http, http.get("/metrics") as response:
            text = await response.text()
        found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
        return float(found[1]) if found else 0.0

    names = ["rollbox_sessions", 'rollbox_sessions_opened_total{how="forked"}']
    names += [
        'rollbox_sessions_ended_total{reason="closed"}',
        'rollbox_cells_total{state="rolled_back",status="error"}',
    ]
    before = [await metric(name) for name in names]
    async with await sandbox.create_session() as session:
        [copy] = await session.fork(1)
        await copy.run("__import__('os')._exit(1)")
        changes = [await metric(name) - old for name, old in zip(names, before, strict=True)]
        assert changes == [2, 1, 0, 1]
        await copy.close()
    assert await metric(names[2]) - before[2] == 2
