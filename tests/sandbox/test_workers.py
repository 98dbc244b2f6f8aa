"""Several workers at one address: one server to whoever asks, whatever becomes of one of them."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

from rollbox.sandbox.client import Sandbox
from rollbox.sandbox.siblings import Siblings
from rollbox.sandbox.totals import added_metrics, added_pools
from rollbox.schemas.errors import SandboxError, ToolError
from rollbox.schemas.run import RunLimits, RunRequest

from .server_process import ServerProcess, below, processes_with, serving, until

TOKEN = "of-all-the-workers-together"
HEADERS = {"Authorization": f"Bearer {TOKEN}"}
UNIQUE = "import uuid; print(uuid.uuid4())"


@pytest.fixture(scope="module")
def two() -> Iterator[ServerProcess]:
    env = {"ROLLBOX_SANDBOX_TOKEN": TOKEN}
    with serving("--workers", "2", "--slots", "4", "--queue", "1000", "--max-per-client", "400", env=env) as server:
        yield server


def _workers(server: ServerProcess) -> dict[int, str]:
    return {pid: text for pid, text in below(server.process.pid).items() if "rollbox.sandbox.serve" in text}


async def _own_connection(server: ServerProcess, request: RunRequest) -> str:
    async with Sandbox.connect(server.url, token=TOKEN) as sandbox:
        return (await sandbox.run(request)).stdout


async def test_a_key_is_run_once_on_whichever_connection_it_comes(two: ServerProcess) -> None:
    requests = [RunRequest(code=UNIQUE, idempotency_key=str(uuid.uuid4())) for _ in range(8)]
    asked = [request for request in requests for _ in range(6)]
    texts = await asyncio.gather(*(_own_connection(two, request) for request in asked))
    assert len(set(texts)) == len(requests)
    assert [texts[start] for start in range(0, len(asked), 6)] == [
        texts[start + 5] for start in range(0, len(asked), 6)
    ]


async def test_what_a_sibling_refuses_is_refused_as_by_oneself(two: ServerProcess) -> None:
    async with Sandbox.connect(two.url, token=TOKEN) as sandbox:
        for _ in range(8):  # keys of either worker
            request = RunRequest(code="1", idempotency_key=str(uuid.uuid4()), limits=RunLimits(wall_s=3000))
            with pytest.raises(ToolError, match=r"limits\.wall_s: 3000"):
                await sandbox.run(request)


async def test_a_batch_is_spread_over_the_workers(two: ServerProcess) -> None:
    runs = [{"code": f"print({number})", "idempotency_key": str(uuid.uuid4())} for number in range(40)]
    async with (
        aiohttp.ClientSession(two.url, headers=HEADERS) as http,
        http.post("/v1/batch", json={"runs": runs}) as response,
    ):
        lines = (await response.text()).splitlines()
    assert len(lines) == 40
    assert all('"status":"ok"' in line for line in lines)


async def test_a_judging_with_a_key_is_done_once(two: ServerProcess) -> None:
    body = {
        "code": UNIQUE,
        "tests": [{"expected_stdout": "x"}],
        "idempotency_key": str(uuid.uuid4()),
        "stop_at_first_failure": False,
    }
    texts = set()
    for _ in range(6):
        async with (
            aiohttp.ClientSession(two.url, headers=HEADERS) as http,
            http.post("/v1/judge", json=body) as response,
        ):
            assert response.status == 200, await response.text()
            texts.add(await response.text())
    assert len(texts) == 1


async def test_info_and_metrics_are_of_all_workers(two: ServerProcess) -> None:
    async with aiohttp.ClientSession(two.url, headers=HEADERS) as http:
        counted = []
        for _ in range(2):
            async with http.get("/metrics") as response:
                lines = (await response.text()).splitlines()
            counted.append(float(_value(lines, 'rollbox_runs_total{status="ok"}')))
            assert _value(lines, "rollbox_slots") == "4.0"
            assert sum(line == "# TYPE rollbox_runs_total counter" for line in lines) == 1
            for number in range(7):
                body = {"code": "print(1)", "idempotency_key": f"{uuid.uuid4()}-{number}"}
                async with http.post("/v1/run", json=body) as response:
                    assert response.status == 200
        async with http.get("/v1/info") as response:
            info = await response.json()
    assert counted[1] == counted[0] + 7
    assert (info["pool"]["slots"], info["pool"]["queue"]) == (4, 1000)
    assert info["workers"] == {"all": 2, "serving": 2}


def _value(lines: list[str], sample: str) -> str:
    return next((line.rpartition(" ")[2] for line in lines if line.startswith(f"{sample} ")), "0.0")


async def test_siblings_ask_for_the_token_too(two: ServerProcess) -> None:
    folders = [text.partition("--workers-dir=")[2].split("\0")[0] for text in _workers(two).values()]
    assert os.stat(folders[0]).st_mode & 0o777 == 0o700
    connector = aiohttp.UnixConnector(f"{folders[0]}/0.socket")
    async with aiohttp.ClientSession("http://worker", connector=connector) as http, http.get("/v1/info") as response:
        assert response.status == 401


async def test_a_disconnect_reaches_the_worker_that_runs_it(two: ServerProcess) -> None:
    async with Sandbox.connect(two.url, token=TOKEN) as sandbox:
        marker = f"marker-{uuid.uuid4()}"
        sleepers = [
            asyncio.create_task(
                sandbox.run(RunRequest(code="import time; time.sleep(300)", args=[marker], client=str(n)))
            )
            for n in range(4)
        ]
        await until(lambda: len(processes_with(marker)) >= 1)
        for sleeper in sleepers:
            sleeper.cancel()
        await asyncio.gather(*sleepers, return_exceptions=True)
        await until(lambda: processes_with(marker) == [])


async def test_a_dead_worker_is_replaced_and_loses_only_its_own_runs() -> None:
    with serving("--workers", "2", "--slots", "2") as server:
        before = set(_workers(server))
        victim = min(before)
        os.kill(victim, signal.SIGKILL)
        async with Sandbox.connect(server.url, max_retries=100) as sandbox:
            texts = await asyncio.gather(*(sandbox.run(RunRequest(code="print(1)"), deadline_s=60) for _ in range(20)))
            assert {text.stdout for text in texts} == {"1\n"}
            await until(lambda: len(_workers(server)) == 2)
            assert victim not in _workers(server)
        async with aiohttp.ClientSession(server.url) as http:
            while True:
                async with http.get("/v1/info") as response:
                    if (await response.json())["workers"]["serving"] == 2:
                        break


async def test_what_concerns_a_session_goes_to_the_worker_that_its_id_names() -> None:
    with serving("--workers", "2", "--slots", "2") as server:
        pids = {("--worker=1" in text): pid for pid, text in _workers(server).items()}
        folder = _workers(server)[pids[False]].partition("--workers-dir=")[2].split("\0")[0]
        connector = aiohttp.UnixConnector(f"{folder}/0.socket")
        async with aiohttp.ClientSession("http://worker", connector=connector) as first:
            os.kill(pids[True], signal.SIGSTOP)  # it still listens
            asking = asyncio.create_task(first.get("/v1/sessions/s1-ab12/anything"))
            for path in ("/v1/sessions/s0-ab12", "/v1/sessions/s7-ab12", "/v1/sessions/1-ab12"):
                async with first.get(path) as response:
                    assert response.status == 404
            assert not asking.done()
            os.kill(pids[True], signal.SIGKILL)
            async with await asking as response:
                assert response.status == 503
                assert "worker 1 of this server was lost" in (await response.json())["detail"]


async def test_a_worker_that_does_not_stay_up_is_given_up() -> None:
    with serving("--workers", "2", "--slots", "2") as server:
        seen: set[int] = set()
        folder = next(iter(_workers(server).values())).partition("--workers-dir=")[2].split("\0")[0]
        assert os.listdir(folder)

        def kill_new() -> bool:
            for pid, text in _workers(server).items():
                if pid not in seen and "--worker=1" in text:
                    seen.add(pid)
                    os.kill(pid, signal.SIGKILL)
            return server.process.poll() is not None

        await until(kill_new, within_s=60)
        assert server.process.returncode == 3
        assert "worker 1 ended 5 times soon after its start, last with signal 9" in server.process.communicate()[1]
    assert not await asyncio.to_thread(os.path.exists, folder)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--workers", "3", "--slots", "2"), "workers: 3 workers need as many slots; there are 2"),
        (("--workers", "2", "--slots", "2", "--preload", "torch"), "ended with exit code 3 before it served"),
        (("--workers", "2", "--slots", "2", "--host", "0.0.0.0"), "can be reached from other machines"),
        (("--workers", "0"), "workers: Input should be greater than or equal to 1"),
    ],
)
def test_workers_that_cannot_serve(arguments: tuple[str, ...], said: str) -> None:
    command = [sys.executable, "-m", "rollbox.sandbox.serve", "--port", "0", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert result.returncode == 3
    assert said in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_drains_all_workers(number: int) -> None:
    marker = f"marker-{uuid.uuid4()}"
    with serving("--workers", "2", "--slots", "4") as server:
        folders = [text.partition("--workers-dir=")[2].split("\0")[0] for text in _workers(server).values()]
        async with Sandbox.connect(server.url, max_retries=0) as sandbox:
            sleeper = "import time; time.sleep(1); print('done')"
            requests = [RunRequest(code=sleeper, args=[marker], idempotency_key=str(uuid.uuid4())) for _ in range(2)]
            running = [asyncio.create_task(sandbox.run(request)) for request in requests]
            await until(lambda: len(processes_with(marker)) == 2)
            server.process.send_signal(number)
            assert [(await each).stdout for each in running] == ["done\n"] * 2
            assert await asyncio.to_thread(server.process.wait, 30) == 0
            with pytest.raises(SandboxError):
                await sandbox.run(RunRequest(code="print(1)"), deadline_s=5)
        assert server.process.communicate()[1] == ""
    await until(lambda: not os.path.exists(folders[0]))


@pytest.mark.parametrize("how", ["kill", "lifeline"])
async def test_nothing_is_left_of_a_supervisor_that_dies(how: str) -> None:
    marker = f"marker-{uuid.uuid4()}"
    with serving("--workers", "2", "--slots", "2") as server:
        folder = next(iter(_workers(server).values())).partition("--workers-dir=")[2].split("\0")[0]
        async with Sandbox.connect(server.url, max_retries=0) as sandbox:
            request = RunRequest(code="import time; time.sleep(300)", args=[marker], limits=RunLimits(wall_s=300))
            running = asyncio.create_task(sandbox.run(request))
            await until(lambda: processes_with(marker) != [])
            ours = set(below(server.process.pid))
            if how == "kill":
                server.process.kill()
            else:
                server.let_go()
            await asyncio.gather(running, return_exceptions=True)
            await until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in ours))
            await until(lambda: not os.path.exists(folder))


@pytest.mark.parametrize("shared", [True, False])
async def test_an_embedded_server_may_have_workers(shared: bool) -> None:
    async with Sandbox.embedded(shared=shared, workers=2, slots=2, queue=77) as sandbox:
        assert (await sandbox.run(RunRequest(code="print(1)"))).stdout == "1\n"
        assert (await sandbox.info())["workers"] == {"all": 2, "serving": 2}


def test_keys_are_shared_out_evenly_and_for_good() -> None:
    siblings = [Siblings(worker, 3, tempfile.gettempdir()) for worker in range(3)]
    owners = [[each.elsewhere(f"key {number}") for each in siblings] for number in range(3000)]
    counts = [sum(row[worker] is None for row in owners) for worker in range(3)]
    assert sum(counts) == 3000  # each key has one owner, of whom all others know
    assert all(len({owner for owner in row if owner is not None}) == 1 for row in owners)
    assert min(counts) > 900
    assert siblings[0].elsewhere(None) is None
    assert Siblings().elsewhere("any") is None


def test_totals() -> None:
    pools = [{"kind": "zygote", "slots": 2, "running": 1}, {"kind": "zygote", "slots": 1, "running": 0}]
    assert added_pools(pools) == {"kind": "zygote", "slots": 3, "running": 1}
    counter, created = "# HELP a_total A.\n# TYPE a_total counter\n", "# HELP a_created A.\n# TYPE a_created gauge\n"
    first = f'{counter}a_total{{k="x y"}} 1.0\n{created}a_created 9.0\n'
    second = f'{counter}a_total{{k="z"}} 2.0\na_total{{k="x y"}} 5.0\n{created}a_created 7.0\n'
    assert added_metrics([first, second]).splitlines() == [
        *("# HELP a_total A.", "# TYPE a_total counter", 'a_total{k="x y"} 6.0', 'a_total{k="z"} 2.0'),
        *("# HELP a_created A.", "# TYPE a_created gauge", "a_created 7.0"),
    ]
