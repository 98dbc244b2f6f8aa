"""A server's start and end."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rollbox.sandbox.client import Sandbox
from rollbox.sandbox.interpreter import Interpreter
from rollbox.sandbox.pool import Pool
from rollbox.sandbox.process_pool import ProcessPool
from rollbox.sandbox.self_check import NAMESPACES, check_isolation
from rollbox.schemas.errors import ConfigError, SandboxError, ToolError
from rollbox.schemas.run import RunRequest, RunResult, RunStatus

from .server_process import below, processes_with, serving, until

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="changes user")


async def test_sigterm_lets_programs_finish_and_refuses_new_ones() -> None:
    marker = f"marker-{uuid.uuid4()}"
    with serving() as server:
        async with Sandbox.connect(server.url, max_retries=0) as sandbox:
            request = RunRequest(code="import time; time.sleep(1); print('done')", args=[marker])
            running = asyncio.create_task(sandbox.run(request))
            await until(lambda: len(processes_with(marker)) == 1)
            server.process.send_signal(signal.SIGTERM)
            assert (await running).stdout == "done\n"
            assert await asyncio.to_thread(server.process.wait, 30) == 0
            with pytest.raises(SandboxError):
                await sandbox.run(RunRequest(code="print(1)"), deadline_s=5)
        assert server.process.communicate()[1] == ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_a_server_that_is_still_starting(number: signal.Signals) -> None:
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "rollbox.sandbox.serve", "--port", "0")
    try:
        # Its zygotes come up before it serves.
        await until(lambda: len(below(process.pid)) > 0)
        process.send_signal(number)
        assert await asyncio.wait_for(process.wait(), 60) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_sigterm_ends_programs_that_do_not_finish() -> None:
    marker = f"marker-{uuid.uuid4()}"
    with serving("--drain-s", "1") as server:
        async with Sandbox.connect(server.url, max_retries=0) as sandbox:
            running = asyncio.create_task(sandbox.run(RunRequest(code="import time; time.sleep(300)", args=[marker])))
            await until(lambda: len(processes_with(marker)) == 1)
            server.process.send_signal(signal.SIGTERM)
            with pytest.raises(SandboxError):
                await running
            assert await asyncio.to_thread(server.process.wait, 30) == 0
            await until(lambda: processes_with(marker) == [])


async def test_the_process_pool_serves_too() -> None:
    with serving("--pool", "process", "--slots", "2") as server:
        async with Sandbox.connect(server.url) as sandbox:
            assert (await sandbox.info())["pool"]["kind"] == "process"
            request = RunRequest(code="import sys; print(sys.argv[1:], input())", args=["a"], stdin="in")
            assert (await sandbox.run(request)).stdout == "['a'] in\n"
            with pytest.raises(ToolError, match="figures"):
                await sandbox.run(RunRequest(code="1", figures=True))


def test_zygotes_can_be_started_beforehand() -> None:
    with serving("--preload", "bare,math", "--slots", "1") as server:
        tasks = Path(f"/proc/{server.process.pid}/task")
        children = {int(pid) for task in tasks.iterdir() for pid in (task / "children").read_text().split()}
        assert len(children.intersection(processes_with("jail.spawner"))) == 2


def _start(*arguments: str, before: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    command = [*before, sys.executable, "-m", "rollbox.sandbox.serve", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--slots", "0"), "slots"),
        (("--port", "http"), "port"),
        (("--host", "192.0.2.1"), "192.0.2.1"),
        (("--max-wall-s", "nan"), "max_wall_s"),
        (("--pool", "thread"), "pool"),
        (("--port", "0", "--preload", "bare,torch"), "no tier 'torch'"),
    ],
)
def test_wrong_settings_are_named(arguments: tuple[str, ...], named: str) -> None:
    ended = _start(*arguments)
    assert ended.returncode == 3
    assert named in ended.stderr
    assert "Traceback" not in ended.stderr


@needs_root
def test_where_no_jail_can_be_built_the_server_does_not_start() -> None:
    # Inside a user namespace of one user there is no nobody to become.
    ended = _start("--port", "0", before=("unshare", "--user", "--map-root-user"))
    assert ended.returncode == 3
    assert "leave root" in ended.stderr
    assert "run the server as a normal user" in ended.stderr
    assert "Traceback" not in ended.stderr


class DoctoredPool(ProcessPool):
    """Answers the probe with facts of the test's choice."""

    def __init__(self, facts: dict[str, Any]) -> None:
        self._facts = facts

    async def run(self, request: RunRequest) -> RunResult:
        return RunResult(status=RunStatus.OK, exit_code=0, stdout=json.dumps(self._facts))


@pytest.fixture(scope="module")
def good_facts() -> dict[str, Any]:
    return {
        "status": {"Seccomp": "2", "NoNewPrivs": "1", "CapEff": "0", "CapPrm": "0", "CapBnd": "0"},
        "namespaces": {name: f"{name}:[1]" for name in NAMESPACES},
        "uid": 1000,
        "read_only": True,
        "interfaces": ["lo"],
        "descriptors": ["0", "1", "2", "3"],
        "processes": 66,
        "memory": 1 << 30,
        "private": True,
    }


@pytest.mark.parametrize(
    ("changed", "layer"),
    [
        ({"status": {"Seccomp": "0", "NoNewPrivs": "1", "CapEff": "0", "CapPrm": "0", "CapBnd": "0"}}, "seccomp"),
        ({"status": {"Seccomp": "2", "NoNewPrivs": "0", "CapEff": "0", "CapPrm": "0", "CapBnd": "0"}}, "privileges"),
        ({"status": {"Seccomp": "2", "NoNewPrivs": "1", "CapEff": "1ff", "CapPrm": "0", "CapBnd": "0"}}, "capabil"),
        ({"uid": 0}, "not root"),
        ({"read_only": False}, "read-only root"),
        ({"interfaces": ["lo", "eth0"]}, "no network"),
        ({"descriptors": ["0", "1", "2", "3", "4"]}, "descriptors"),
        ({"processes": -1}, "process limit"),
        ({"memory": -1}, "memory limit"),
        ({"private": False}, "private folders"),
    ],
)
async def test_a_missing_layer_is_named(good_facts: dict[str, Any], changed: dict[str, Any], layer: str) -> None:
    pool: Pool = DoctoredPool(good_facts)
    assert await check_isolation(pool)
    with pytest.raises(ConfigError, match=layer):
        await check_isolation(DoctoredPool({**good_facts, **changed}))


@pytest.mark.parametrize("name", NAMESPACES)
async def test_a_shared_namespace_is_named(good_facts: dict[str, Any], name: str) -> None:
    shared = {**good_facts["namespaces"], name: os.readlink(f"/proc/self/ns/{name}")}
    with pytest.raises(ConfigError, match=f"{name} namespace"):
        await check_isolation(DoctoredPool({**good_facts, "namespaces": shared}))


async def test_the_pool_ends_its_programs_when_it_closes() -> None:
    marker = f"marker-{uuid.uuid4()}"
    async with ProcessPool(slots=1, queue=1) as pool:
        tasks = [
            asyncio.create_task(pool.run(RunRequest(code="import time; time.sleep(300)", args=[marker])))
            for _ in range(2)
        ]
        await until(lambda: len(processes_with(marker)) == 1)
        assert dataclasses.astuple(pool.info()) == ("process", 1, 1, 1, 1)
    await asyncio.wait(tasks)
    assert all(task.cancelled() for task in tasks)
    assert processes_with(marker) == []


@needs_root
async def test_a_normal_user_can_run_the_server() -> None:
    # Root's home hides what lies in it from other users, so give them a view in which it does not.
    repository = Path(__file__).parents[2]
    hidden = sorted({str(path) for path in (Path(sys.base_prefix), Path(sys.prefix), repository)})
    shown = " ".join(path for path in hidden if path.startswith("/root/"))
    view = f"""
set -e
if [ -n "{shown}" ]; then
    mount -t tmpfs -o mode=755 none /mnt
    for path in {shown}; do mkdir -p /mnt$path; mount --bind $path /mnt$path; done
    mount --rbind /mnt/root /root
fi
exec setpriv --reuid 65534 --regid 65534 --clear-groups "$@"
"""
    before = ("unshare", "--mount", "sh", "-c", view, "sh")
    with serving("--slots", "1", before=before) as server:
        assert os.stat(f"/proc/{server.process.pid}").st_uid == 65534
        async with Sandbox.connect(server.url) as sandbox:
            code = "import os; print(os.getuid(), open('/etc/passwd').read().count(':'))"
            assert (await sandbox.run(RunRequest(code=code))).stdout == "1000 6\n"
            assert "seccomp" in (await sandbox.info())["isolation"]


@pytest.fixture
def venv_under_tmp() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        venv = Path(folder) / "venv"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
        yield venv


async def test_an_interpreter_under_tmp_is_shown_inside_the_private_tmp(venv_under_tmp: Path) -> None:
    python = venv_under_tmp / "bin" / "python"
    [packages] = (venv_under_tmp / "lib").glob("python*/site-packages")
    ours = [path for path in sys.path if path.endswith("site-packages")]
    lines = [str(Path(__file__).parents[2] / ".links"), *ours]
    (packages / "shared.pth").write_text("\n".join(lines))
    with serving("--slots", "1", python=str(python)) as server:
        async with Sandbox.connect(server.url) as sandbox:
            code = "import os, sys; print(sys.executable); print(sorted(os.listdir('/tmp')))"
            seen = (await sandbox.run(RunRequest(code=code))).stdout.splitlines()
    assert seen == [str(python), str([venv_under_tmp.parent.name])]


@pytest.mark.parametrize(
    ("interpreter", "text"),
    [
        (Interpreter("/absent/python", ("/usr",)), "could not be started: No such file"),
        (Interpreter(sys.executable, ("/usr", "/absent")), "step 'open read-only folders.*No such file"),
        (Interpreter(sys.executable, ("/usr/share",)), "step 'execute': No such file"),
    ],
)
async def test_a_jail_that_cannot_be_built_is_our_failure(interpreter: Interpreter, text: str) -> None:
    async with ProcessPool(slots=1, queue=0) as pool:
        working = pool._interpreter
        pool._interpreter = interpreter
        with pytest.raises(SandboxError, match=text) as caught:
            await pool.run(RunRequest(code="print(1)"))
        assert "/absent" not in str(caught.value)
        pool._interpreter = working
        assert (await pool.run(RunRequest(code="print(1)"))).stdout == "1\n"
