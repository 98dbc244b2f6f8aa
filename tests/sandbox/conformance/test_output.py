"""Output: all of it drained, its ends kept, any bytes survive."""

from __future__ import annotations

from typing import Any

import pytest

from ..conftest import RunCode


@pytest.mark.beyond_run_code
async def test_s01_large_output_is_drained_and_cut_in_the_middle(run: RunCode, cases: dict[str, Any]) -> None:
    result = await run(cases["S01"]["input"], output_bytes=4096)
    assert (result.status, result.exit_code) == ("ok", 0)
    assert result.stdout_bytes == 40_000 * 9 + 4
    assert result.stdout_truncated
    assert result.stdout.startswith("00000000 00000001 ")
    assert result.stdout.endswith("END\n")
    assert f"[... {result.stdout_bytes - 4096} bytes left out ...]" in result.stdout


@pytest.mark.beyond_run_code
async def test_both_streams_are_drained_at_once(run: RunCode) -> None:
    result = await run("import os\nfor _ in range(64):\n os.write(2, b'e' * 65536); os.write(1, b'o' * 65536)")
    assert (result.status, result.stdout_bytes, result.stderr_bytes) == ("ok", 4 << 20, 4 << 20)


@pytest.mark.beyond_run_code
async def test_invalid_utf8_and_nul(run: RunCode) -> None:
    result = await run(r"import os; os.write(1, b'a\xff\x00\xe4b\n' + 'ä€😀\n'.encode())")
    assert result.stdout == "a\\xff\0\\xe4b\nä€😀\n"
    assert result.stdout_bytes == 6 + 10


@pytest.mark.beyond_run_code
async def test_a_character_is_not_split_at_the_cut(run: RunCode) -> None:
    result = await run("print('€' * 10_000, end='')", output_bytes=1000)
    assert set(result.stdout.split("\n")[0]) == set(result.stdout.split("\n")[-1]) == {"€"}


async def test_exit_code_is_kept(run: RunCode) -> None:
    result = await run("import os; print('out'); os._exit(7)")
    assert (result.status, result.exit_code, result.signal, result.stdout) == ("error", 7, None, "out\n")


async def test_segmentation_fault_is_a_result(run: RunCode) -> None:
    result = await run("import ctypes; ctypes.string_at(0)")
    assert (result.status, result.exit_code, result.signal) == ("error", None, 11)


async def test_traceback_names_the_program_and_no_host_path(run: RunCode) -> None:
    result = await run("def f():\n    raise ValueError('no')\nf()")
    assert 'File "/workspace/main.py", line 2, in f' in result.stderr
    assert result.stderr.endswith("ValueError: no\n")


async def test_s07_await_in_a_program(run: RunCode, cases: dict[str, Any]) -> None:
    assert (await run(cases["S07"]["input"]["b"])).stdout == "b\n"
    at_top_level = await run(cases["S07"]["input"]["a"])
    assert "SyntaxError" in at_top_level.stderr
    assert "asyncio.run" in (at_top_level.hint or "")


async def test_missing_package_has_a_hint(run: RunCode) -> None:
    assert "no network" in ((await run("import surely_not_installed")).hint or "")


async def test_x02_showing_a_figure_returns_at_once(run: RunCode, cases: dict[str, Any]) -> None:
    result = await run(cases["X02"]["input"], wall_s=60)
    if "No module named 'matplotlib'" not in result.stderr:
        assert (result.status, result.stdout) == ("ok", "done\n")
