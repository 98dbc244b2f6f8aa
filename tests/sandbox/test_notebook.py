"""SandboxFusion's /run_jupyter."""

from __future__ import annotations

import asyncio
import base64
import os
import signal
from contextlib import suppress
from typing import Any

import aiohttp
import pytest

from .server_process import ServerProcess, below, serving


async def _cells(server: ServerProcess, *cells: str, **fields: Any) -> dict[str, Any]:
    async with (
        aiohttp.ClientSession(server.url) as http,
        http.post("/run_jupyter", json={"cells": cells, **fields}) as response,
    ):
        assert response.status == 200, await response.text()
        answer: dict[str, Any] = await response.json()
        return answer


async def test_cells_share_their_state(server: ServerProcess) -> None:
    answer = await _cells(server, "x = 41", "import numpy\nx += numpy.int64(1)\nprint(x)", "int(x)", "None", "__name__")
    assert (answer["status"], answer["driver"]["return_code"]) == ("Success", 0)
    assert [cell["stdout"] for cell in answer["cells"]] == ["", "42\n", "", "", ""]
    shown = [cell["display"] for cell in answer["cells"]]
    assert shown == [[], [], [{"text/plain": "42"}], [], [{"text/plain": "'__main__'"}]]


async def test_a_failing_cell_does_not_stop_the_next(server: ServerProcess) -> None:
    answer = await _cells(server, "print('a')\n1 / 0", "x = = 1", "import sys; sys.exit(3)", "print('b')")
    assert answer["status"] == "Success"
    assert [cell["stdout"] for cell in answer["cells"]] == ["a\n", "", "", "b\n"]
    errors = [cell["error"][0]["ename"] if cell["error"] else None for cell in answer["cells"]]
    assert errors == ["ZeroDivisionError", "SyntaxError", "SystemExit", None]
    trace = "".join(answer["cells"][0]["error"][0]["traceback"])
    assert 'File "<cell 1>", line 2' in trace
    assert "    1 / 0\n" in trace
    assert "main.py" not in trace


async def test_time_limits_keep_what_was_done(server: ServerProcess) -> None:
    answer = await _cells(server, "print(1)", "while True: pass", "print(3)", cell_timeout=0.3)
    assert answer["status"] == "Success"
    assert [cell["stdout"] for cell in answer["cells"]] == ["1\n", "", "3\n"]
    assert answer["cells"][1]["error"][0]["ename"] == "TimeoutError"
    answer = await _cells(server, "print(1)", "import time; time.sleep(60)", total_timeout=1)
    assert (answer["status"], answer["driver"]["status"]) == ("Failed", "TimeLimitExceeded")
    assert [cell["stdout"] for cell in answer["cells"]] == ["1\n"]


async def test_files_and_figures(server: ServerProcess) -> None:
    files = {"in.txt": base64.b64encode(b"abc").decode(), "none": None}
    answer = await _cells(
        server, "t = open('in.txt').read()", "open('out', 'w').write(t.upper())", files=files, fetch_files=["out"]
    )
    assert answer["files"] == {"out": base64.b64encode(b"ABC").decode()}
    pytest.importorskip("matplotlib")
    plot = "import matplotlib.pyplot as p\np.figure(figsize=(1, 1)); p.plot([1, 2]); p.show()"
    [bundle] = (await _cells(server, plot))["cells"][0]["display"]
    assert base64.b64decode(bundle["image/png"])[:4] == b"\x89PNG"


async def test_bad_requests(server: ServerProcess) -> None:
    async with aiohttp.ClientSession(server.url) as http:
        for body in ({}, {"cells": "x"}, {"cells": ["1"], "kernel": "bash"}, {"cells": ["1"], "total_timeout": -1}):
            async with http.post("/run_jupyter", json=body) as response:
                assert response.status == 422


async def test_a_session_that_is_lost_is_the_sandboxes_failure() -> None:
    with serving("--slots", "1") as server:
        answer = asyncio.create_task(_cells(server, "import time\ntime.sleep(300)"))
        while not answer.done():  # a session that had not begun is opened again
            await asyncio.wait({answer}, timeout=1.0)
            for pid, command in below(server.process.pid).items():
                if "jail.zygote" in command and not answer.done():
                    with suppress(ProcessLookupError):  # taken along by another
                        os.kill(pid, signal.SIGKILL)
        said = await answer
    assert said["status"] == "SandboxError"
    assert "lost" in said["message"]
    assert said["cells"] == []
