"""One embedded server per machine: shared by processes, ended with the last of them, however they end."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rollbox.sandbox.client import Sandbox
from rollbox.sandbox.shared_server import SharedServer
from rollbox.sandbox.users import Users
from rollbox.schemas.errors import ConfigError, SandboxError
from rollbox.schemas.run import RunRequest

from .server_process import until

USER = """
import asyncio, sys
from rollbox.sandbox.client import Sandbox
from rollbox.schemas.run import RunRequest

async def main():
    async with Sandbox.embedded(slots=1, queue=int(sys.argv[1])) as sandbox:
        result = await sandbox.run(RunRequest(code="print(6 * 7)"))
        print(sandbox.server_pid, result.stdout.strip(), flush=True)
        await asyncio.to_thread(sys.stdin.readline)

asyncio.run(main())
"""
PRINT = RunRequest(code="print(1)")


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The lock and the socket of this test alone, also for processes that it starts."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    yield tmp_path / f"rollbox-{os.geteuid()}"
    monkeypatch.undo()


class User:
    """A process that uses the shared server until it is told to end."""

    def __init__(self, queue: int = 7) -> None:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self.process = subprocess.Popen([sys.executable, "-c", USER, str(queue)], text=True, **pipes)  # type: ignore[call-overload]

    def server(self) -> int:
        pid, answer = self.process.stdout.readline().split()
        assert answer == "42"
        return int(pid)

    def end(self) -> None:
        """Let it end, and read its streams to their end: nothing else may hold them."""
        assert self.process.communicate("\n", timeout=60) == ("", "")


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("how", ["end", "kill"])
async def test_processes_share_a_server_that_ends_with_the_last(how: str) -> None:
    users = [User() for _ in range(3)]  # all at a time: one starts it, the others wait for that
    server, *others = await asyncio.gather(*(asyncio.to_thread(user.server) for user in users))
    assert others == [server, server]
    for user in users:
        assert _lives(server)
        if how == "end":
            await asyncio.to_thread(user.end)
        else:
            user.process.kill()
            await asyncio.to_thread(user.process.communicate)
    await until(lambda: not _lives(server))


async def test_leaving_waits_for_the_end_of_the_server_but_not_of_one_that_others_use() -> None:
    async with Sandbox.embedded(slots=1) as first:
        server = first.server_pid
        assert server is not None
        async with Sandbox.embedded(slots=1) as second:
            assert (second.server_pid, second.url) == (server, first.url)
        assert _lives(server)
        assert (await first.run(PRINT)).stdout == "1\n"
    assert not _lives(server)


async def test_other_settings_are_another_server() -> None:
    async with Sandbox.embedded(slots=1) as first, Sandbox.embedded(slots=2) as second:
        assert first.server_pid != second.server_pid
        assert (await second.info())["pool"]["slots"] == 2


async def test_a_killed_server_is_replaced_for_the_next_user() -> None:
    async with Sandbox.embedded(slots=1, max_retries=0) as first:
        server = first.server_pid
        assert server is not None
        os.kill(server, signal.SIGKILL)
        await until(lambda: not _lives(server))
        with pytest.raises(SandboxError, match="cannot be reached"):
            await first.run(PRINT)
        async with Sandbox.embedded(slots=1) as second:
            assert second.server_pid != server
            assert (await second.run(PRINT)).stdout == "1\n"


async def test_nothing_but_the_lock_and_the_log_is_left(own_folder: Path) -> None:
    async with Sandbox.embedded(slots=1) as sandbox:
        await sandbox.run(PRINT)
    assert sorted(os.path.splitext(name)[1] for name in os.listdir(own_folder)) == [".lock", ".log"]


def test_a_folder_that_others_can_write_is_refused(own_folder: Path) -> None:
    own_folder.mkdir()
    own_folder.chmod(0o777)
    with pytest.raises(ConfigError, match="closed to others"):
        asyncio.run(SharedServer({"slots": 1}).start())
    own_folder.rmdir()
    own_folder.symlink_to("/")
    with pytest.raises(ConfigError, match="must be a folder of this user"):
        asyncio.run(SharedServer({"slots": 1}).start())


def test_a_path_too_long_for_a_socket_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / ("x" * 100)
    deep.mkdir()
    monkeypatch.setenv("TMPDIR", str(deep))
    monkeypatch.setattr("tempfile.tempdir", None)
    with pytest.raises(ConfigError, match="set TMPDIR to a shorter path"):
        asyncio.run(SharedServer({"slots": 1}).start())


async def test_a_server_that_nobody_comes_to_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rollbox.sandbox.users.FIRST_USER_S", 0.01)
    ended = asyncio.Event()
    async with Users(str(tmp_path / "s"), "http://127.0.0.1:1", ended.set):
        await ended.wait()
        # Too late: the promise of a greeting cannot be kept.
        reader, writer = await asyncio.open_unix_connection(str(tmp_path / "s"))
        assert await reader.read() == b""
        writer.close()
    assert os.listdir(tmp_path) == []
