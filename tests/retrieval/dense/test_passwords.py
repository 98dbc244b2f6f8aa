"""An index keeps no passwords: its server's address is given again where it needs one."""

from __future__ import annotations

import asyncio
import base64
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ...rewards.scoring_server import ScriptedServer, scripted_server

HUSH = "hu5h"
PROOF = "Basic " + base64.b64encode(f"user:{HUSH}".encode()).decode()


async def rollbox(*arguments: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "rollbox.cli", "retriever", *arguments]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    said, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, said.decode()


async def test_no_password_is_written(tmp_path: Path) -> None:
    corpus, index = tmp_path / "c.jsonl", tmp_path / "index"
    corpus.write_text('{"id": "1", "contents": "Peru\\nLima is the capital of Peru."}\n')

    def answer(path: str, body: Any) -> Any:
        if server.headers[-1].get("Authorization") != PROOF:
            return 401
        return {"data": [{"index": i, "embedding": [1.0, 2.0]} for i, _ in enumerate(body["input"])]}

    server: ScriptedServer
    async with scripted_server(answer) as server:
        plain = f"{server.url}/v1/embeddings"
        secret = plain.replace("://", f"://user:{HUSH}@")
        build = ["index", str(corpus), "--out", str(index), "--dense", "m", "--dense-url"]
        code, said = await rollbox(*build, plain)
        assert (code, "--dense-url" in said, "HTTP 401" in said) == (2, True, True), said
        code, said = await rollbox(*build, secret)
        assert code == 0, said
        assert [path for path in index.rglob("*") if path.is_file() and HUSH.encode() in path.read_bytes()] == []
        assert plain in (index / "dense" / "manifest.json").read_text()

        serve = ["serve", str(index), "--backend", "dense", "--port", "0"]
        code, said = await rollbox(*serve)
        assert (code, "--embedding-url" in said, "HTTP 401" in said, "Traceback" in said) == (2, True, True, False), (
            said
        )
        code, said = await rollbox(*serve, "--embedding-url", secret.replace(HUSH, "wr0ng"))
        assert (code, "wr0ng" in said) == (2, False), said
        assert await served(*serve, "--embedding-url", secret)


async def served(*arguments: str) -> bool:
    command = [sys.executable, "-m", "rollbox.cli", "retriever", *arguments]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    line = (await process.stdout.readline()).decode()
    process.terminate()
    await process.wait()
    return line.startswith("retriever on http://")


@pytest.mark.parametrize("stage", ["begun", "half"])
async def test_nor_by_a_build_that_does_not_end(tmp_path: Path, stage: str) -> None:
    corpus, index = tmp_path / "c.jsonl", tmp_path / "index"
    corpus.write_text("".join(f'{{"id": "{i}", "contents": "t\\nword {i}"}}\n' for i in range(1500)))
    asked = 0

    def answer(path: str, body: Any) -> Any:
        nonlocal asked
        asked += len(body["input"])
        if stage == "half" and asked > 1200:
            return 403
        return {"data": [{"index": i, "embedding": [1.0, 2.0]} for i, _ in enumerate(body["input"])]}

    async with scripted_server(answer) as server:
        url = f"{server.url}/v1/embeddings".replace("://", f"://user:{HUSH}@")
        options = ["--dense", "m", "--dense-url", url] + (["--max-bad", "0"] if stage == "begun" else [])
        if stage == "begun":
            with corpus.open("a") as more:
                more.write("no record\n")
        code, said = await rollbox("index", str(corpus), "--out", str(index), *options)
    assert (code, HUSH in said) == (2, False), said
    assert [path for path in index.rglob("*") if path.is_file() and HUSH.encode() in path.read_bytes()] == []
    assert (index / ("building.json" if stage == "begun" else "dense/progress.json")).exists()
