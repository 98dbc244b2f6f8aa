"""What goes in with a program, and the files that come out."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from rollbox.schemas.errors import ErrorKind, ToolError

from ..conftest import RunCode


def _b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


async def test_s05_without_stdin_reading_fails_at_once_with_a_hint(run: RunCode, cases: dict[str, Any]) -> None:
    result = await run(cases["S05"]["input"]["a"]["code"])
    assert result.stderr.rstrip().endswith("EOFError: EOF when reading a line")
    assert "no stdin is attached" in (result.hint or "")
    assert result.run_ms < 5000


async def test_s05_with_stdin(run: RunCode, cases: dict[str, Any]) -> None:
    case = cases["S05"]["input"]["b"]
    assert (await run(case["code"], stdin=case["stdin"])).stdout == "144\n"


async def test_empty_stdin_is_attached(run: RunCode) -> None:
    result = await run("print(repr(input()))", stdin="")
    assert (result.status, result.hint) == ("error", None)


@pytest.mark.beyond_run_code
async def test_megabytes_of_stdin_that_nobody_reads(run: RunCode) -> None:
    assert (await run("print('ok')", stdin="x" * (4 << 20))).stdout == "ok\n"


@pytest.mark.beyond_run_code
async def test_arguments_and_environment(run: RunCode) -> None:
    code = "import os, sys; print(sys.argv[1:], os.environ['A'], __name__)"
    assert (await run(code, args=["x", "-y"], env={"A": "b c"})).stdout == "['x', '-y'] b c __main__\n"


async def test_request_files_can_be_read_and_imported(run: RunCode) -> None:
    files = {"helper.py": _b64("answer = 42"), "data/in.txt": _b64("hello")}
    result = await run("import helper; print(helper.answer, open('data/in.txt').read())", files=files)
    assert result.stdout == "42 hello\n"


async def test_a_request_file_may_be_called_like_the_program(run: RunCode) -> None:
    result = await run("import main; print(main.x, __file__)", files={"main.py": _b64("x = 1")})
    assert result.stdout == "1 /workspace/_main.py\n"


async def test_fetched_files(run: RunCode) -> None:
    result = await run(
        "import os\nos.mkdir('d'); open('d/out', 'wb').write(bytes(range(256)))", fetch_files=["d/out", "absent", "d"]
    )
    assert result.files == {"d/out": base64.b64encode(bytes(range(256))).decode()}


async def test_fetching_follows_no_link_and_waits_for_no_pipe(run: RunCode) -> None:
    traps = """
import os
os.symlink('/etc/passwd', 'link')
os.symlink('/etc', 'folder')
os.symlink('/proc/1/environ', 'environ')
os.mkfifo('pipe')
os.symlink('/dev/zero', 'zero')
print('set')
"""
    asked = ["link", "folder/passwd", "environ", "pipe", "zero"]
    result = await run(traps, fetch_files=asked, wall_s=10)
    assert (result.status, result.stdout, result.files) == ("ok", "set\n", {})


async def test_a_fetched_file_that_is_too_large_is_named(run: RunCode) -> None:
    result = await run("open('big', 'wb').truncate(40 << 20)", fetch_files=["big"], work_dir_mb=64)
    assert result.files == {}
    assert "big (41943040 bytes)" in (result.hint or "")


@pytest.mark.parametrize(
    ("files", "named"),
    [({"a": "eA==", "a/b": "eA=="}, "files.a/b"), ({"x" * 300: "eA=="}, "files.xxx"), ({"d/": "eA=="}, None)],
)
@pytest.mark.beyond_run_code
async def test_files_that_cannot_be_written_are_named(run: RunCode, files: dict[str, str], named: str | None) -> None:
    if named is None:
        assert (await run("print(open('d').read())", files=files)).stdout == "x\n"
        return
    with pytest.raises(ToolError, match=named) as caught:
        await run("print(1)", files=files)
    assert caught.value.kind is ErrorKind.ARGUMENTS


@pytest.mark.beyond_run_code
async def test_files_that_do_not_fit_are_named(run: RunCode) -> None:
    big = base64.b64encode(bytes(3 << 20)).decode()
    with pytest.raises(ToolError, match=r"files\.big.*work_dir_mb"):
        await run("print(1)", files={"big": big}, work_dir_mb=1)


@pytest.mark.beyond_run_code
async def test_large_inputs_arrive_whole(run: RunCode) -> None:
    big = base64.b64encode(bytes(20 << 20)).decode()
    code = "# " + "x" * 3_000_000 + "\nimport os; print(os.path.getsize('big'))"
    assert (await run(code, files={"big": big})).stdout == f"{20 << 20}\n"
