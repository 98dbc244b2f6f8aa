"""A program finds what `python main.py` would give it, and ends as it would there."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from ..conftest import RunCode


async def test_the_module_is_main_and_nothing_else_is_in_it(seen: Any) -> None:
    names = await seen("import json; print(json.dumps([__name__, __file__, sorted(globals())]))")
    assert names[:2] == ["__main__", "/workspace/main.py"]
    assert set(names[2]) == {
        *("__annotations__", "__builtins__", "__cached__", "__doc__", "__file__", "__loader__", "__name__"),
        *("__package__", "__spec__", "json"),
    }


@pytest.mark.beyond_run_code
async def test_command_line_and_import_path(seen: Any) -> None:
    code = """
import json, sys
shown = open('/proc/self/cmdline').read().rstrip(chr(0)).split(chr(0))
print(json.dumps([sys.argv, sys.orig_argv[1:], shown[1:], sys.path[0], sys.modules['__main__'].__file__]))
"""
    main = "/workspace/main.py"
    assert await seen(code) == [[main], [main], [main], "/workspace", main]
    assert (await seen(code, args=["a b", "-c"]))[:3] == [[main, "a b", "-c"]] * 3


async def test_nothing_of_the_zygote_is_left_in_sight(seen: Any) -> None:
    answers = await seen("""
import gc, json, os, sys
print(json.dumps({
    "modules": [name for name in sys.modules if name.split(".")[0] == "jail"],
    "path": [path for path in [*sys.path, *sys.path_importer_cache] if "/fd/" in path],
    "env": sorted({"GLIBC_TUNABLES", "PYTHONMALLOC"} & set(os.environ)),
    "descriptors": sorted(os.listdir("/proc/self/fd"))[:3],
    "gc": gc.isenabled(),
    "umask": os.umask(0),
}))
""")
    assert answers == {
        "modules": [],
        "path": [],
        "env": [],
        "descriptors": ["0", "1", "2"],
        "gc": True,
        "umask": 0o022,
    }


@pytest.mark.parametrize(
    ("code", "exit_code", "stderr"),
    [
        ("import sys; sys.exit(3)", 3, ""),
        ("raise SystemExit", 0, ""),
        ("import sys; sys.exit('bye')", 1, "bye\n"),
        ("import sys; sys.exit(257)", 1, ""),
        ("import sys; sys.exit(-1)", 255, ""),
        ("import os; os._exit(9)", 9, ""),
        ("import sys; sys.excepthook = lambda *a: print('hook', file=sys.stderr); 1/0", 1, "hook\n"),
        ("import threading as t; t.Thread(target=lambda: 1/0).start()", 0, "ZeroDivisionError: division by zero\n"),
    ],
)
async def test_exit_codes(run: RunCode, code: str, exit_code: int, stderr: str) -> None:
    result = await run(code)
    assert (result.exit_code, result.signal) == (exit_code, None)
    assert result.stderr.endswith(stderr)


async def test_an_interrupt_ends_the_program_by_its_signal(run: RunCode) -> None:
    result = await run("import os, signal; os.kill(os.getpid(), signal.SIGINT)\nimport time; time.sleep(5)")
    assert (result.exit_code, result.signal) == (None, 2)
    assert result.stderr.endswith("KeyboardInterrupt\n")


async def test_tracebacks_are_the_programs_own(run: RunCode) -> None:
    result = await run("def f(n):\n    return 1 / n\n\nf(0)")
    assert result.stderr == (
        "Traceback (most recent call last):\n"
        '  File "/workspace/main.py", line 4, in <module>\n'
        "    f(0)\n"
        '  File "/workspace/main.py", line 2, in f\n'
        "    return 1 / n\n"
        "           ~~^~~\n"
        "ZeroDivisionError: division by zero\n"
    )
    result = await run("print('never')\nx = (1,\n")
    assert result.stdout == ""
    assert result.stderr.startswith('  File "/workspace/main.py", line 2\n    x = (1,\n')
    assert "Traceback" not in result.stderr


async def test_what_happens_at_the_end_happens_in_order(run: RunCode) -> None:
    result = await run("""
import atexit, threading, time
class Last:
    def __del__(self): print("object")
last = Last()
atexit.register(print, "handler")
threading.Thread(target=lambda: (time.sleep(0.1), print("thread"))).start()
print("main")
""")
    assert (result.exit_code, result.stdout) == (0, "main\nthread\nhandler\nobject\n")


async def test_a_file_that_was_not_closed_is_written(run: RunCode) -> None:
    result = await run("f = open('out', 'w'); f.write('kept')", fetch_files=["out"])
    assert result.files == {"out": base64.b64encode(b"kept").decode()}


async def test_a_closed_stdout_is_no_error(run: RunCode) -> None:
    assert (await run("import sys; sys.stdout.close()")).exit_code == 0


async def test_random_numbers_differ_between_programs(run: RunCode) -> None:
    code = "import random, numpy; print(random.random(), numpy.random.rand(), numpy.random.randn())"
    texts = [(await run(code, wall_s=60)).stdout.split() for _ in range(3)]
    assert len({number for text in texts for number in text}) == 9
    same = [(await run("import random; random.seed(1); print(random.random())")).stdout for _ in range(2)]
    assert set(same) == {"0.13436424411240122\n"}


@pytest.mark.parametrize("name", ["PYTHONHASHSEED", "PYTHONOPTIMIZE"])
@pytest.mark.beyond_run_code
async def test_variables_that_the_interpreter_reads_at_its_start(seen: Any, name: str) -> None:
    code = "import json, sys; print(json.dumps([sys.flags.optimize, sys.flags.hash_randomization, sys.argv]))"
    flags = await seen(code, env={name: "0" if name == "PYTHONHASHSEED" else "2"})
    assert flags == [0 if name == "PYTHONHASHSEED" else 2, name == "PYTHONOPTIMIZE", ["/workspace/main.py"]]


async def test_a_request_file_hides_a_module_that_is_imported_already(run: RunCode) -> None:
    files = {"random.py": base64.b64encode(b"x = 'mine'").decode()}
    assert (await run("import random; print(random.x)", files=files)).stdout == "mine\n"


async def test_little_memory(run: RunCode) -> None:
    assert (await run("import numpy; print(numpy.arange(3).sum())", memory_mb=256, wall_s=60)).stdout == "3\n"
    assert (await run("print('small')", memory_mb=16)).stdout == "small\n"


async def test_worker_processes(run: RunCode) -> None:
    code = """
import multiprocessing, os
def double(n): return 2 * n
if __name__ == "__main__":
    for method in ("fork", "spawn"):
        with multiprocessing.get_context(method).Pool(2) as pool:
            print(pool.map(double, range(3)))
"""
    assert (await run(code, wall_s=60)).stdout == "[0, 2, 4]\n[0, 2, 4]\n"


async def test_a_port_used_by_one_program_is_free_for_the_next(run: RunCode) -> None:
    # The side that closes first keeps its port in TIME_WAIT, for a minute.
    code = """
import socket
listener = socket.socket(); listener.bind(("127.0.0.1", 5001)); listener.listen()
client = socket.create_connection(("127.0.0.1", 5001))
served = listener.accept()[0]
served.close(); client.recv(1); client.close()
print("ok")
"""
    for _ in range(6):
        assert (await run(code)).stdout == "ok\n"


@pytest.mark.beyond_run_code
async def test_runs_leave_nothing_in_memory(run: RunCode) -> None:
    # Assembled at run time on both sides, so that the searched text is in no source.
    await run(
        "import json\nsecret = json.dumps('sesame-' + 'X' * 3 + 'open')\nprint(len(secret))", env={"S": "a" + "bra"}
    )
    look = """
needle = b"sesame-" + b"X" * 3
found = 0
for line in open("/proc/self/maps"):
    span, mode = line.split()[:2]
    if "r" in mode and "w" in mode:
        start, end = (int(part, 16) for part in span.split("-"))
        with open("/proc/self/mem", "rb") as memory:
            memory.seek(start)
            data = memory.read(end - start)
        found += data.count(needle + b"open")
print(found)
"""
    for _ in range(4):
        assert (await run(look)).stdout == "0\n"
