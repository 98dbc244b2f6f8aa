"""Forks of a session: the same state, open files and folders, and from there each on its own."""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import AsyncIterator

import pytest

from rollbox.sandbox.client import Sandbox
from rollbox.sandbox.session_client import SandboxSession
from rollbox.schemas.errors import ErrorKind, OverloadedError, ToolError
from rollbox.schemas.run import RunLimits
from rollbox.schemas.session import SessionRequest

from .server_process import serving

BOMB = """
import os, time
n = 0
try:
    while n < 100:
        if not os.fork():
            time.sleep(60)
        n += 1
except OSError:
    pass
n < 20
"""
LANDLOCK = ctypes.CDLL(None).syscall(444, None, 0, 1) >= 6

STATE = """
import os, random
counter, squares = 0, (n * n for n in range(100))
next(squares); next(squares)
double = lambda n: 2 * n
class Box:
    def __init__(self, value): self.value = value
box = Box([1]); random.seed(7)
os.makedirs('data/deep'); open('data/deep/file', 'w').write('shared past')
reader = open('data/deep/file'); head = reader.read(7)
writer = open('log', 'w'); writer.write('line 0\\n'); writer.flush()
os.chdir('data')
"""
THREAD = "import threading\ngo = threading.Event(); t = threading.Thread(target=go.wait); t.start()"
TASK = "import asyncio\nasync def f():\n    global k\n    k = asyncio.create_task(asyncio.sleep(99))\nawait f()"
LOOK = "counter, next(squares), double(4), box.value, reader.read(), os.getcwd(), random.random()"


@pytest.fixture
async def session(sandbox: Sandbox) -> AsyncIterator[SandboxSession]:
    async with await sandbox.create_session() as opened:
        await _value(opened, STATE)
        yield opened


async def _value(session: SandboxSession, code: str) -> str | None:
    result = await session.run(code)
    assert (result.status, result.state) == ("ok", "committed"), result
    return result.last_expression


async def test_copies_have_the_same_state(session: SandboxSession) -> None:
    copies = await session.fork(3)
    seen = {await _value(each, LOOK) for each in (session, *copies)}
    assert len(seen) == 1
    assert next(iter(seen)).startswith("(0, 4, 8, [1], 'past', '/workspace/data', 0.3")
    assert {(await each.info()).cells for each in copies} == {2}
    assert (await copies[0].info()).parent == f"{session.id[:9]}…"


async def test_each_copy_is_on_its_own(session: SandboxSession) -> None:
    copies = await session.fork(3)
    everyone = [session, *copies]
    for number, each in enumerate(everyone):
        code = f"""
counter += {number}; box.value.append({number}); os.environ['WHO'] = '{number}'
reader.seek({number}); writer.write('of {number}\\n'); writer.flush()
open('/tmp/who', 'w').write('{number}'); open('/dev/shm/who', 'w').write('{number}')
open('deep/file', 'a').write(' of {number}'); open('deep/new{number}', 'w').close()
"""
        await _value(each, code)
    look = """(counter, box.value, os.environ['WHO'], reader.tell(), open('../log').read(), open('/tmp/who').read(),
        open('/dev/shm/who').read(), open('deep/file').read(), sorted(os.listdir('deep')), writer.tell())"""
    for number, each in enumerate(everyone):
        expected = (
            *(number, [1, number], str(number), number, f"line 0\nof {number}\n", str(number)),
            *(str(number), f"shared past of {number}", ["file", f"new{number}"], 12),
        )
        assert await _value(each, look) == repr(expected)


async def test_copies_of_copies(session: SandboxSession) -> None:
    path, at = [], session
    for level in range(4):
        await _value(at, f"counter += 1; open('/workspace/level{level}', 'w').write('{level}')")
        path.append(at)
        [at] = await at.fork(1)
    path.append(at)
    look = "counter, sorted(name for name in os.listdir('/workspace') if name.startswith('level'))"
    for level, each in enumerate(path):
        depth = min(level + 1, 4)
        assert await _value(each, look) == repr((depth, [f"level{number}" for number in range(depth)]))


async def test_a_copy_outlives_what_it_was_forked_from(session: SandboxSession) -> None:
    [copy] = await session.fork(1)
    [grandchild] = await copy.fork(1)
    await session.close()
    await copy.close()
    assert (
        await _value(grandchild, "box.value, reader.read(), open('deep/file').read()") == "([1], 'past', 'shared past')"
    )
    assert (await grandchild.run("os._exit(1)")).state == "rolled_back"
    assert await _value(grandchild, "counter") == "0"


async def test_members_run_and_are_undone_at_the_same_time(session: SandboxSession) -> None:
    copies = await session.fork(4)
    meet = "import time\ncounter += {n}; open('mark', 'w').write('{n}'); time.sleep(0.3)\n"
    ends = ["", "os._exit(1)", "while True: pass", "1 / 0"]
    results = await asyncio.gather(
        *(each.run(meet.format(n=n) + end, wall_s=2) for n, (each, end) in enumerate(zip(copies, ends, strict=True), 1))
    )
    assert [result.state for result in results] == ["committed", "rolled_back", "rolled_back", "committed"]
    marks = [await _value(each, "counter, os.path.exists('mark') and open('mark').read()") for each in copies]
    assert marks == ["(1, '1')", "(0, False)", "(0, False)", "(4, '4')"]
    assert await _value(session, "counter, os.path.exists('mark')") == "(0, False)"


async def test_an_undone_cell_ends_its_own_processes_and_not_a_siblings(session: SandboxSession) -> None:
    [copy] = await session.fork(1)
    await _value(session, "import subprocess\np = subprocess.Popen(['sleep', '1000'])")
    assert (
        await copy.run("import subprocess; subprocess.Popen(['sleep', '1000']); os._exit(1)")
    ).state == "rolled_back"
    assert await _value(session, "str(p.poll())") == "'None'"


async def test_objects_that_cannot_be_pickled(sandbox: Sandbox) -> None:
    request = SessionRequest(packages=["sympy", "numpy"])
    async with await sandbox.create_session(request) as session:
        code = "import sympy, numpy\ny = sympy.Symbol('y'); equation = y**2 - 4\ngrid = numpy.arange(6).reshape(2, 3)\n"
        code += "solve = lambda: sympy.solve(equation, y)\ngen = (v for v in solve())\ndef outer():\n    n = 0\n"
        code += "    def inner():\n        nonlocal n; n += 1; return n\n    return inner\ncount = outer(); count()"
        await _value(session, code)
        copies = await session.fork(2)
        for each in (*copies, session):
            assert await _value(each, "next(gen), solve(), count(), int(grid.sum())") == "(-2, [-2, 2], 2, 15)"
            await _value(each, "grid += 1")


async def test_data_frames(sandbox: Sandbox) -> None:
    async with await sandbox.create_session(SessionRequest(packages=["pandas"])) as session:
        await _value(session, "import pandas\nframe = pandas.DataFrame({'a': range(5)}); chunks = frame.itertuples()")
        await _value(session, "row = next(chunks)")
        copies = await session.fork(2)
        for number, each in enumerate(copies):
            assert await _value(each, f"frame['a'] += {number}; int(frame.a.sum()), next(chunks).Index") == (
                f"({10 + 5 * number}, 1)"
            )
        assert await _value(session, "int(frame.a.sum())") == "10"


async def test_an_open_file_without_a_name_is_copied(session: SandboxSession) -> None:
    await _value(session, "import tempfile\nt = tempfile.TemporaryFile(mode='w+'); t.write('abc'); t.flush()")
    [copy] = await session.fork(1)
    await _value(copy, "t.write('copy'); t.flush()")
    await _value(session, "t.write('x'); t.flush()")
    assert await _value(copy, "t.seek(0); t.read()") == "'abccopy'"
    assert await _value(session, "t.seek(0); t.read()") == "'abcx'"


async def test_what_cannot_be_forked_says_why(session: SandboxSession) -> None:
    for code, undo, why in (
        (THREAD, "go.set(); t.join()", "threads"),
        ("import mmap\nm = mmap.mmap(-1, 4096)", "m.close()", "shared memory"),
        ("ends = os.pipe()", "[os.close(end) for end in ends]", "pipes or sockets"),
        (TASK, "k.cancel(); await asyncio.sleep(0)", "tasks"),
    ):
        await session.run(code)
        with pytest.raises(ToolError, match=why) as caught:
            await session.fork(2)
        assert caught.value.kind is ErrorKind.USER_CODE
        assert (await session.run(undo)).status == "ok"
        assert len(await session.fork(1)) == 1


async def test_an_event_loop_is_not_shared(session: SandboxSession) -> None:
    await _value(session, "import asyncio\nawait asyncio.sleep(0)")
    [copy] = await session.fork(1)
    wait = "await asyncio.gather(*(asyncio.sleep(0.01, n) for n in range(3)))"
    assert await asyncio.gather(_value(session, wait), _value(copy, wait)) == ["[0, 1, 2]"] * 2


async def test_a_copy_cannot_reach_out_of_its_view(session: SandboxSession) -> None:
    copies = await session.fork(2)
    await _value(session, "open('/workspace/secret', 'w').write('of the first')")
    await _value(copies[0], "open('/workspace/secret', 'w').write('of the second')")
    escape = """
found = []
os.makedirs('/workspace/jail', exist_ok=True)
os.chdir('/workspace')
try:
    os.chroot('/workspace/jail')
    for _ in range(40):
        os.chdir('..')
    os.chroot('.')
except OSError as error:
    found.append(repr(error))
for folder, folders, files in os.walk('/'):
    if folder.startswith(('/proc', '/usr', '/lib')):
        folders.clear()
    found += [os.path.join(folder, name) for name in files if name == 'secret']
found
"""
    assert await _value(copies[1], escape) == "[]"
    # Nor mount, nor enter a namespace, and programs that it starts have no right to chroot at all.
    calls = "libc.mount(b'x', b'/', b'tmpfs', 0, 0), libc.unshare(0x10000000), libc.setns(0, 0)"
    assert await _value(copies[1], f"import ctypes; libc = ctypes.CDLL(None)\n{calls}") == "(-1, -1, -1)"
    grep = "import subprocess; subprocess.run(['grep', 'CapEff', '/proc/self/status'], capture_output=True).stdout"
    assert await _value(copies[0], grep) == "b'CapEff:\\t0000000000000000\\n'"


@pytest.mark.skipif(not LANDLOCK, reason="needs Landlock of Linux 6.12")
async def test_a_copy_cannot_reach_its_relatives(session: SandboxSession) -> None:
    copies = await session.fork(2)
    await _value(session, "child = __import__('subprocess').Popen(['sleep', '1000'])")
    reach = """
reached = []
for pid in range(2, 100):
    for way in ('root', 'cwd', 'mem'):
        try:
            os.kill(pid, 0); os.stat(f'/proc/{pid}/{way}'); reached.append(pid)
        except (PermissionError, ProcessLookupError, FileNotFoundError):
            pass
len(set(reached))
"""
    # Itself, its own way back, and nothing else.
    assert await _value(copies[0], reach) == "2"
    assert await _value(session, "child.poll(), child.terminate(), child.wait()") == "(None, None, -15)"


async def test_too_many_copies_are_refused_whole() -> None:
    with serving("--slots", "2", "--max-sessions", "6", "--max-sessions-per-client", "4") as server:
        async with (
            Sandbox.connect(server.url) as sandbox,
            await sandbox.create_session(SessionRequest(client="a")) as one,
        ):
            with pytest.raises(OverloadedError, match="4 at most"):
                await one.fork(4, deadline_s=0.1)
            copies = await one.fork(3)
            with pytest.raises(OverloadedError, match="client 'a'"):
                await sandbox.create_session(SessionRequest(client="a"), deadline_s=0.1)
            others = [await sandbox.create_session(SessionRequest(client="b")) for _ in range(2)]
            with pytest.raises(OverloadedError, match="of 6 at most"):
                await sandbox.create_session(SessionRequest(client="b"), deadline_s=0.1)
            await copies[0].close()
            assert (await (await sandbox.create_session(SessionRequest(client="b"))).run("1")).last_expression == "1"
            assert (await others[0].run("2")).last_expression == "2"


async def test_the_process_limit_is_the_familys(sandbox: Sandbox) -> None:
    async with await sandbox.create_session(SessionRequest(limits=RunLimits(processes=4))) as session:
        copies = await session.fork(5)
        for each in copies:
            assert (await each.run("import subprocess; subprocess.run(['true']).returncode")).last_expression == "0"
        result = await session.run(BOMB)
        assert result.last_expression == "True"
