"""What comes back besides the output: the last expression, the failing line, figures."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from ..conftest import RunCode


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("1 + 1", "2"),
        ("x = [1]\nx", "[1]"),
        ("'text'", "'text'"),
        ("print('shown')", None),
        ("None", None),
        ("x = 3", None),
        ("if True:\n    4", None),
        ("from __future__ import annotations\ndef f(x: int): ...\nf.__annotations__", "{'x': 'int'}"),
        ("import numpy\nnumpy.arange(3)", "array([0, 1, 2])"),
        ("", None),
    ],
)
@pytest.mark.zygotes_only
@pytest.mark.beyond_run_code
async def test_the_value_of_a_final_bare_expression(run: RunCode, code: str, value: str | None) -> None:
    result = await run(code, echo_last_expression=True, wall_s=60)
    assert (result.status, result.last_expression, result.files) == ("ok", value, {})
    assert (await run(code, wall_s=60)).last_expression is None


@pytest.mark.zygotes_only
@pytest.mark.beyond_run_code
async def test_a_last_expression_that_fails(run: RunCode) -> None:
    result = await run("x = 0\n1 / x", echo_last_expression=True)
    assert (result.status, result.error_line, result.last_expression) == ("error", 2, None)
    assert result.stderr.startswith('Traceback (most recent call last):\n  File "/workspace/main.py", line 2, in <mod')
    syntax = await run("x = (", echo_last_expression=True)
    assert syntax.stderr.startswith('  File "/workspace/main.py", line 1\n')


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("\n1/0", 2),
        ("def f():\n    raise ValueError\n\nf()", 2),
        ("import json\njson.loads('{')", 2),
        ("x = 1\nx = = 2", 2),
        ("try:\n    1/0\nexcept Exception:\n    [][0]", 4),
        ("print('fine')", None),
        ("import sys\nsys.exit(1)", None),
    ],
)
@pytest.mark.beyond_run_code
async def test_the_failing_line(run: RunCode, code: str, line: int | None) -> None:
    assert (await run(code)).error_line == line


@pytest.mark.zygotes_only
@pytest.mark.beyond_run_code
async def test_figures(run: RunCode) -> None:
    if (await run("import matplotlib")).status != "ok":
        pytest.skip("matplotlib is not installed where programs run")
    code = """
import matplotlib.pyplot as plt
for power in (1, 2):
    plt.figure(figsize=(1, 1)); plt.plot([n ** power for n in range(3)])
plt.show()
1 / 0
"""
    result = await run(code, figures=True, wall_s=60)
    assert (result.status, result.error_line) == ("error", 6)
    assert [base64.b64decode(figure)[:4] for figure in result.figures] == [b"\x89PNG"] * 2
    assert (await run(code, wall_s=60)).figures == []
    assert (await run("print('no figure')", figures=True)).figures == []


@pytest.mark.zygotes_only
@pytest.mark.beyond_run_code
async def test_extras_together_with_files(run: RunCode, seen: Any) -> None:
    result = await run("open('a', 'w').write('x')", echo_last_expression=True, fetch_files=["a"])
    assert (result.last_expression, result.files) == ("1", {"a": base64.b64encode(b"x").decode()})
