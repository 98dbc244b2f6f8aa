"""Stateful sessions: what a notebook does, a session does."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from rollbox.sandbox.client import Sandbox
from rollbox.sandbox.session_client import SandboxSession
from rollbox.schemas.errors import ErrorKind, ToolError
from rollbox.schemas.run import RunLimits
from rollbox.schemas.session import CellResult, SessionRequest

from .server_process import serving

Value = Callable[[str], Awaitable[str | None]]


@pytest.fixture
async def session(sandbox: Sandbox) -> AsyncIterator[SandboxSession]:
    async with await sandbox.create_session() as opened:
        yield opened


@pytest.fixture
def value(session: SandboxSession) -> Value:
    """The last expression of a cell that must do well."""

    async def of(code: str) -> str | None:
        result = await session.run(code)
        assert (result.status, result.state) == ("ok", "committed"), result
        return result.last_expression

    return of


async def _failed(session: SandboxSession, code: str) -> CellResult:
    result = await session.run(code)
    assert (result.status, result.exit_code, result.state) == ("error", 1, "committed"), result
    return result


async def test_state_is_kept_from_cell_to_cell(value: Value) -> None:
    await value("import os, math\nx = 41\ndef f(n): return math.factorial(n) + x")
    await value("class Point:\n    def __init__(self, a): self.a = a\np = Point(3)")
    await value("x += 1\nos.makedirs('folder'); os.chdir('folder')")
    await value("open('file', 'w').write('text')\ndel math.e")
    seen = await value("x, f(3), p.a, os.getcwd(), open('/workspace/folder/file').read(), hasattr(math, 'e')")
    assert seen == "(42, 48, 3, '/workspace/folder', 'text', False)"
    assert await value("os.getpid() == first if 'first' in globals() else None") is None
    await value("first = os.getpid()")
    assert await value("os.getpid() == first") == "True"


async def test_only_the_last_bare_expression_is_a_value(value: Value) -> None:
    assert await value("1\n'two'") == "'two'"
    assert await value("1 if True else 2;") == "1"
    assert await value("x = 3") is None
    assert await value("None") is None
    assert await value("if True:\n    5") is None
    assert await value("") is None
    assert await value("# only a comment") is None
    assert await value("'''doc'''") == "'doc'"


async def test_output_and_input_are_each_cells_own(session: SandboxSession) -> None:
    first = await session.run(
        "import sys\nprint('out'); print('err', file=sys.stderr); input(), input()", stdin="a\nb\nc\n"
    )
    assert (first.stdout, first.stderr, first.last_expression) == ("out\n", "err\n", "('a', 'b')")
    second = await session.run("print('second'); sys.stdin.read()", stdin="d")
    assert (second.stdout, second.last_expression, second.stdout_bytes) == ("second\n", "'d'", 7)
    assert (await session.run("sys.stdin.read()")).last_expression == "''"


async def test_input_without_stdin_fails_at_once_with_advice(session: SandboxSession) -> None:
    result = await _failed(session, "name = input('Who? ')")
    assert "EOFError: no stdin is attached" in result.stderr
    assert "head.py" not in result.stderr
    assert "cell.py" not in result.stderr
    assert result.hint is not None
    assert "pass `stdin`" in result.hint


async def test_top_level_await_and_one_event_loop_for_all_cells(value: Value) -> None:
    await value(
        "import asyncio\nqueue = asyncio.Queue()\nasync def double(n):\n    await asyncio.sleep(0)\n    return 2 * n"
    )
    assert await value("await double(21)") == "42"
    await value("async def start(): return asyncio.create_task(queue.get())\ntask = await start()")
    assert await value("await queue.put('late')\nawait task") == "'late'"
    assert await value("[await double(n) for n in (1, 2)]") == "[2, 4]"
    assert await value("asyncio.run(double(4))") == "8"
    assert await value("await double(5)") == "10"


async def test_a_traceback_shows_the_cells_own_line_and_name(session: SandboxSession) -> None:
    await session.run("def divide(a, b):\n    return a / b  # the culprit")
    result = await _failed(session, "x = 1\ndivide(x, 0)")
    assert 'File "<cell 2>", line 2, in <module>\n    divide(x, 0)' in result.stderr
    assert 'File "<cell 1>", line 2, in divide\n    return a / b  # the culprit' in result.stderr
    assert "jail" not in result.stderr
    assert (result.error_line, result.cell) == (2, 2)
    assert result.error is not None
    assert (result.error.name, result.error.text) == ("ZeroDivisionError", "division by zero")
    syntax = await _failed(session, "y = 1\nreturn y")
    assert 'File "<cell 3>", line 2\n    return y' in syntax.stderr
    assert "SyntaxError: 'return' outside function" in syntax.stderr
    assert syntax.error_line == 2
    broken = await _failed(session, "if True\n    pass")
    assert "expected ':'" in broken.stderr


async def test_an_exception_keeps_what_ran_before_it(session: SandboxSession, value: Value) -> None:
    await _failed(session, "a = 1\nb = 1 / 0\nc = 3")
    assert await value("a, 'c' in globals()") == "(1, False)"
    await _failed(session, "class Rude(Exception):\n    def __str__(self): raise ValueError\nraise Rude")
    await _failed(session, "class Ruder:\n    def __repr__(self): raise KeyboardInterrupt\nRuder()")
    await _failed(session, "raise BaseException('\\ud800')")
    assert await value("a") == "1"


async def test_sys_exit_ends_the_cell_and_not_the_session(session: SandboxSession, value: Value) -> None:
    for code, exit_code, status in (("4", 4, "error"), ("", 0, "ok"), ("'why'", 1, "error"), ("0", 0, "ok")):
        result = await session.run(f"import sys\nkept = 7\nsys.exit({code})\nkept = 8")
        assert (result.exit_code, result.status, result.state) == (exit_code, status, "committed")
    assert "why" in (await session.run("sys.exit('why')")).stderr
    assert await value("kept") == "7"


async def test_figures_are_sent_and_closed(session: SandboxSession) -> None:
    pytest.importorskip("matplotlib")
    plot = "import matplotlib.pyplot as p\nfor n in range(2): p.figure(figsize=(1, 1)); p.plot([n, 2])"
    result = await session.run(plot, figures=True, wall_s=60)
    assert [base64.b64decode(image)[:4] for image in result.figures] == [b"\x89PNG"] * 2
    assert (await session.run("p.get_fignums()", figures=True)).last_expression == "[]"


async def test_files_go_in_and_come_back(sandbox: Sandbox) -> None:
    request = SessionRequest(files={"in/data.txt": base64.b64encode(b"abc").decode()}, env={"MODE": "test"})
    async with await sandbox.create_session(request) as session:
        code = "import os\nopen('out', 'w').write(open('in/data.txt').read().upper()); os.environ['MODE']"
        result = await session.run(code, fetch_files=["out", "absent", "in/data.txt"])
        assert result.last_expression == "'test'"
        assert {name: base64.b64decode(content) for name, content in result.files.items()} == {
            "out": b"ABC",
            "in/data.txt": b"abc",
        }


async def test_a_session_starts_where_its_packages_are_imported(sandbox: Sandbox) -> None:
    async with await sandbox.create_session(SessionRequest(packages=["pandas", "json"])) as session:
        assert (await session.info()).tier == "data"
        assert (
            await session.run("import sys; 'pandas' in sys.modules, __name__, 'jail' in sys.modules")
        ).last_expression == ("(True, '__main__', False)")


async def test_future_statements_hold_for_the_cells_after(value: Value) -> None:
    await value("from __future__ import annotations")
    assert await value("def f(x: absent) -> None: ...\nf.__annotations__['x']") == "'absent'"


async def test_processes_and_threads_of_a_cell_stay(session: SandboxSession, value: Value) -> None:
    await value("import subprocess\np = subprocess.Popen(['cat'], stdin=-1, stdout=-1)")
    result = await session.run("p.communicate(b'hello')[0], p.returncode")
    assert (result.state, result.last_expression) == ("in_place", "(b'hello', 0)")
    assert "pipes or sockets are open" in (result.state_note or "")
    await value("p = subprocess.Popen(['sh', '-c', 'exit 3'])")
    assert await value("p.wait()") == "3"
    await value("import threading\ndone = threading.Event(); go = threading.Event(); n = 0\n")
    work = "def work():\n    global n\n    go.wait(); n += 1; print('lost'); done.set()\n"
    assert (await session.run(work + "threading.Thread(target=work).start()")).state == "committed"
    result = await session.run("go.set(); done.wait(); n")
    assert (result.status, result.state, result.last_expression) == ("ok", "in_place", "1")
    assert "threads" in (result.state_note or "")


async def test_bad_requests_name_the_field(sandbox: Sandbox, session: SandboxSession) -> None:
    for request, field in (
        (SessionRequest(limits=RunLimits(wall_s=3000)), "limits.wall_s"),
        (SessionRequest(packages=["pandas"], limits=RunLimits(memory_mb=16)), "limits.memory_mb"),
        (SessionRequest(files={"a": "", "a/b": ""}), r"files.a/b"),
    ):
        with pytest.raises(ToolError, match=field) as caught:
            await sandbox.create_session(request)
        assert caught.value.kind is ErrorKind.ARGUMENTS
    with pytest.raises(ToolError, match="wall_s"):
        await session.run("1", wall_s=3000)
    with pytest.raises(ToolError, match="unicode"):
        await session.run("'\ud800'")
    with pytest.raises(ToolError, match="wall_s"):
        await session.run("1", wall_s=-1)
    assert (await session.run("1\0")).status == "error"


async def test_a_server_without_zygotes_says_that_it_has_no_sessions() -> None:
    with serving("--slots", "1", "--pool", "process") as server:
        async with Sandbox.connect(server.url) as sandbox:
            with pytest.raises(ToolError, match="--pool zygote"):
                await sandbox.create_session()
