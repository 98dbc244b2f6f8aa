"""A cell that does not end by itself leaves its session as it was before; hostile cells harm their own session only."""

from __future__ import annotations

import asyncio
import textwrap
from collections.abc import AsyncIterator

import pytest

from rollbox.sandbox.client import Sandbox
from rollbox.sandbox.session_client import SandboxSession
from rollbox.schemas.errors import ErrorKind, ToolError
from rollbox.schemas.run import RunLimits
from rollbox.schemas.session import CellResult, SessionRequest

from .conftest import RunCode
from .server_process import ServerProcess, processes_with, until

STATE = """
import os, sys, signal, subprocess, time, ctypes, threading
x, text = [1, 2], 'before'
os.makedirs('folder/deep')
open('folder/deep/file', 'w').write('kept'); open('plain', 'w').write('plain')
os.symlink('plain', 'link'); os.link('plain', 'second'); os.chmod('plain', 0o640)
open('/tmp/t', 'w').write('tmp'); open('/dev/shm/s', 'w').write('shm')
reader = open('folder/deep/file'); first = reader.read(1)
"""
LOOK = """(
    x, text, sorted((at, sorted(names), sorted(files)) for at, names, files in os.walk('.')),
    open('folder/deep/file').read(), open('plain').read(), os.readlink('link'), oct(os.stat('plain').st_mode),
    os.stat('second').st_ino == os.stat('plain').st_ino, os.listdir('/dev/shm'), open('/tmp/t').read(),
    reader.tell(), os.getcwd(), sorted(set(os.listdir('/tmp')) - {'t'}),
)"""
CHANGE = """
x.append(3); text = 'after'; reader.read()
open('folder/deep/file', 'w').write('changed'); os.unlink('plain'); os.symlink('/etc/passwd', 'plain')
os.unlink('link'); os.mkdir('link'); open('link/new', 'w').write('new'); os.chmod('folder', 0)
open('/tmp/t', 'a').write('more'); os.unlink('/dev/shm/s'); os.makedirs('/tmp/a/b/c'); os.chdir('/tmp')
"""


@pytest.fixture
async def session(sandbox: Sandbox) -> AsyncIterator[SandboxSession]:
    limits = RunLimits(wall_s=30, memory_mb=256, output_kill_mb=4)
    async with await sandbox.create_session(SessionRequest(limits=limits)) as opened:
        yield opened


async def _value(session: SandboxSession, code: str) -> str | None:
    result = await session.run(code)
    assert result.status == "ok", result
    return result.last_expression


async def _undone(session: SandboxSession, code: str, wall_s: float | None = None) -> CellResult:
    result = await session.run(code, wall_s=wall_s)
    assert result.state == "rolled_back", result
    assert result.state_note is not None
    assert "as it was before" in result.state_note
    return result


# Says to init that the cell has ended.
FORGED = """
import socket
for fd in range(3, 64):
    try:
        control = socket.socket(fileno=os.dup(fd))
        if control.type == socket.SOCK_SEQPACKET:
            control.send(b'D')
    except OSError:
        pass
"""
IGNORING = """
for number in range(1, 64):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
"""
ENDS = {
    "os._exit": ("os._exit(0)", "error", None),
    "segfault": ("ctypes.string_at(0)", "error", None),
    "abort": ("ctypes.CDLL(None).abort()", "error", None),
    "kill itself": ("os.kill(os.getpid(), signal.SIGKILL)", "error", None),
    "kill its group": ("os.killpg(0, signal.SIGKILL)", "error", None),
    "time": ("print('said'); time.sleep(60)", "timeout", 0.3),
    "time, ignoring signals": (IGNORING + "while True: pass", "timeout", 0.3),
    "CPU time": ("import resource; resource.setrlimit(resource.RLIMIT_CPU, (1, 1))\nwhile True: pass", "error", None),
    "output": ("while True: print('x' * 10000)", "output_limit", None),
    "execv": ("os.execv('/bin/true', ['true'])", "error", None),
    "all descriptors closed": ("os.closerange(0, 256)", "error", None),
    "garbage on all descriptors": (
        "for fd in range(256):\n    try: os.write(fd, b'garbage' * 9)\n    except OSError: pass",
        "error",
        None,
    ),
}


@pytest.mark.parametrize("name", ENDS)
async def test_everything_is_as_before(session: SandboxSession, name: str) -> None:
    code, status, wall_s = ENDS[name]
    await _value(session, STATE)
    before = await _value(session, LOOK)
    result = await _undone(session, CHANGE + code, wall_s)
    assert result.status == status
    assert await _value(session, LOOK) == before
    # And it can go on from there.
    assert await _value(session, "reader.read()") == "'ept'"
    await _undone(session, CHANGE + code, wall_s)
    assert await _value(session, "x.append(4); x") == "[1, 2, 4]"


async def test_memory_of_many_processes_is_too_much(session: SandboxSession) -> None:
    await _value(session, STATE)
    bomb = """
for _ in range(8):
    if not os.fork():
        held = bytearray(os.urandom(1 << 20)) * 100
        time.sleep(60); os._exit(0)
time.sleep(60)
"""
    result = await _undone(session, bomb)
    assert result.status == "memory"
    assert "256 MiB" in (result.state_note or "")
    # One process alone meets its own limit, which is an exception like others.
    result = await session.run("y = 1; z = bytearray(1 << 30)")
    assert (result.status, result.state) == ("memory", "committed")
    assert await _value(session, "y, x") == "(1, [1, 2])"


async def test_processes_of_an_undone_cell_are_gone_and_earlier_ones_stay(session: SandboxSession) -> None:
    await _value(session, STATE + "p = subprocess.Popen(['sleep', '1234'])")
    daemon = """
subprocess.Popen(['sleep', '2345'])
if not os.fork():
    os.setsid()
    if not os.fork():
        os.execvp('sleep', ['sleep', '3456'])
    os._exit(0)
os.wait()
time.sleep(60)
"""
    await _undone(session, daemon, wall_s=1)
    commands = "[open(f'/proc/{p}/cmdline').read().split(chr(0))[1:2] for p in os.listdir('/proc') if p.isdigit()]"
    assert await _value(
        session, f"sorted(each for each in {commands} if '1234' in str(each) or '45' in str(each))"
    ) == ("[['1234']]")


async def test_a_daemon_of_a_cell_that_did_well_does_not_outlive_the_session(sandbox: Sandbox) -> None:
    async with await sandbox.create_session() as session:
        await session.run("import os\nif not os.fork():\n    os.setsid(); os.execvp('sleep', ['sleep', '7654.25'])")
        await until(lambda: len(processes_with("7654.25")) == 1)
    await until(lambda: processes_with("7654.25") == [])


async def test_a_child_that_comes_to_the_end_of_the_cell_ends(session: SandboxSession) -> None:
    result = await session.run(
        "import os\npid = os.fork()\nif pid: os.waitpid(pid, 0)\nprint('parent' if pid else 'child')"
    )
    assert sorted(result.stdout.split()) == ["child", "parent"]
    assert (await session.run("print(1)")).stdout == "1\n"


async def test_signals_to_all_are_refused_and_harm_nobody(session: SandboxSession, sandbox: Sandbox) -> None:
    [copy] = await session.fork(1)
    result = await session.run("import os\nos.kill(-1, 9)")
    assert "PermissionError" in result.stderr
    assert (await session.run("ctypes = __import__('ctypes'); ctypes.CDLL(None).kill(-1, 9)")).last_expression == "-1"
    assert (await copy.run("1")).last_expression == "1"
    assert (await session.run("1")).last_expression == "1"


async def test_a_cell_can_kill_its_way_back_and_loses_its_own_session_only(
    session: SandboxSession, sandbox: Sandbox
) -> None:
    kill_others = """
import os
for pid in map(int, filter(str.isdigit, os.listdir('/proc'))):
    if pid != os.getpid():
        os.kill(pid, 9)
"""
    async with await sandbox.create_session() as other:
        await other.run("x = 'untouched'")
        assert (await session.run(kill_others)).state == "committed"
        result = await session.run(kill_others + "os._exit(5)")
        assert (result.state, result.status, result.exit_code) == ("lost", "error", 5)
        with pytest.raises(ToolError, match="the session is gone: in cell 2") as caught:
            await session.run("1")
        assert caught.value.kind is ErrorKind.USER_CODE
        assert (await other.run("x")).last_expression == "'untouched'"


async def test_a_forged_end_of_a_cell_gains_nothing(session: SandboxSession) -> None:
    await _value(session, STATE)
    # It says that it has ended, and goes on.
    result = await session.run(FORGED + "time.sleep(30)")
    assert result.hint is not None
    assert (result.status, result.state) == ("error", "committed")
    result = await session.run("1", wall_s=1)
    assert result.state in ("lost", "rolled_back", "committed")


async def test_the_control_socket_takes_no_orders_from_children(session: SandboxSession) -> None:
    await _value(session, STATE)
    in_child = "if not os.fork():\n" + textwrap.indent(FORGED + "os._exit(0)\n", "    ")
    result = await session.run(in_child + "os.wait(); time.sleep(0.2); 'end'")
    assert (result.status, result.last_expression) == ("ok", "'end'")


async def test_without_a_way_back_effects_are_kept_and_the_answer_says_so(session: SandboxSession) -> None:
    result = await session.run("x = 1", transactional=False)
    assert (result.state, result.state_note) == (
        "in_place",
        "the cell was not transactional, so the cell ran without a way back",
    )
    result = await session.run("import time\nx = 2\ntime.sleep(60)", wall_s=0.3, transactional=False)
    assert (result.status, result.state) == ("timeout", "in_place")
    assert "KeyboardInterrupt" in result.stderr
    assert await _value(session, "x") == "2"
    result = await session.run("import os\nos._exit(1)", transactional=False)
    assert result.state == "lost"
    with pytest.raises(ToolError, match="not transactional"):
        await session.run("x")


async def test_what_ignores_the_interrupt_is_lost_with_its_session(session: SandboxSession) -> None:
    code = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass"
    assert (await session.run(code, wall_s=0.2, transactional=False)).state == "lost"


async def test_shared_memory_has_no_way_back(session: SandboxSession) -> None:
    await _value(session, "import mmap\nshared = mmap.mmap(-1, 4096)")
    result = await session.run("shared[0] = 1")
    assert (result.state, result.status) == ("in_place", "ok")
    assert "shared memory" in (result.state_note or "")
    await session.run("shared.close()")
    assert (await session.run("1")).state == "committed"


async def test_deep_and_many_files_are_removed_again(session: SandboxSession) -> None:
    await _value(session, STATE)
    before = await _value(session, LOOK)
    deep = "for _ in range(600):\n    os.mkdir('d'); os.chdir('d'); open('f', 'w').close()\n"
    await _undone(session, deep + "os._exit(1)")
    assert await _value(session, LOOK) == before


async def test_what_cannot_be_set_aside_is_said(session: SandboxSession) -> None:
    deep = "import os\nfor _ in range(300):\n    os.mkdir('d'); os.chdir('d')\nos.chdir('/workspace')"
    assert (await session.run(deep)).state == "committed"
    result = await session.run("1")
    assert (result.state, result.status) == ("in_place", "ok")
    assert "files could not be set aside" in (result.state_note or "")


async def test_a_client_that_goes_ends_its_cell_and_undoes_it(server: ServerProcess, session: SandboxSession) -> None:
    await _value(session, "x = 1")
    cell = asyncio.create_task(session.run("x = 2; import subprocess; subprocess.run(['sleep', '8765.5'])"))
    await until(lambda: len(processes_with("8765.5")) == 1)
    cell.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cell
    await until(lambda: processes_with("8765.5") == [])
    assert await _value(session, "x") == "1"


async def test_the_limits_of_a_program_hold(session: SandboxSession) -> None:
    result = await session.run("import os\nwhile True:\n    if not os.fork():\n        import time; time.sleep(60)")
    assert "BlockingIOError" in result.stderr
    assert result.state == "committed"
    others = (
        "for pid in filter(str.isdigit, os.listdir('/proc')):\n    if int(pid) != os.getpid(): os.kill(int(pid), 9)"
    )
    await session.run(others)
    result = await session.run("open('big', 'wb').write(bytes(65 << 20))")
    assert "OSError" in result.stderr


async def test_nobody_hides_from_the_memory_watch(session: SandboxSession, run: RunCode) -> None:
    # A process that is not dumpable vanishes from init's view of /proc, and its memory would not be counted.
    hide = "import ctypes; print(ctypes.CDLL(None).prctl(4, 0, 0, 0, 0))"
    assert (await session.run(hide)).stdout == "-1\n"
    assert (await run(hide)).stdout == "-1\n"
