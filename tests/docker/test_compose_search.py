"""`docker compose --profile search up`: the search server beside the sandbox, over an index that it cannot change."""

from __future__ import annotations

import json
import secrets
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from rollbox.sandbox.client import Sandbox
from rollbox.schemas.run import RunRequest
from rollbox.tools.search import SearchTool

from ..retrieval.corpora import build, records, write_lines
from .engine import REPOSITORY, NoEngineError, run
from .engine import build as build_image
from .fixtures import PROJECT, RETRIEVER_IMAGE, Compose

pytestmark = pytest.mark.docker


@pytest.fixture(scope="module")
def search_compose(compose: Compose, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compose]:
    """Both services, up and healthy. `port` is the search server's."""
    folder = tmp_path_factory.mktemp("search")
    build(write_lines(folder / "c.jsonl", records(200)), folder / "index")
    for path in (folder, folder.parent):
        path.chmod(0o755)
    build_image(compose.env, RETRIEVER_IMAGE, "--target", "retriever")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    own = {
        "ROLLBOX_INDEX": str(folder / "index"),
        "ROLLBOX_RETRIEVER_IMAGE": RETRIEVER_IMAGE,
        "ROLLBOX_RETRIEVER_PORT": str(port),
        "ROLLBOX_SANDBOX_PORT": "0",
    }
    both = replace(compose, env={**compose.env, **own}, port=port, project=f"{PROJECT}-search")
    try:
        both("--profile", "search", "up", "--detach", "--wait", "--no-build")
        yield both
    finally:
        both("--profile", "search", "down", "--volumes", "--timeout", "40")


async def test_both_are_healthy_and_the_search_is_right(search_compose: Compose) -> None:
    assert search_compose.state("sandbox")["Health"] == "healthy"
    assert search_compose.state("retriever")["Health"] == "healthy"
    tool = SearchTool({"retrieval_service_url": f"http://127.0.0.1:{search_compose.port}/retrieve", "topk": 1})
    response, _, metrics = await tool.execute("i", {"query_list": ["word7", "word8"]})
    await tool.aclose()
    texts = [f'Doc 1 (Title: "Title {i}")\nPassage word{i} of the corpus.' for i in (7, 8)]
    assert response.text == "\n---\n".join(texts)
    assert metrics["hits"] == 2


async def test_the_index_is_read_only_and_its_corpus_elsewhere(search_compose: Compose) -> None:
    async with aiohttp.ClientSession(f"http://127.0.0.1:{search_compose.port}") as http, http.get("/v1/info") as reply:
        info = await reply.json()
    assert (info["passages"], info["corpus"], info["index"]) == (200, "absent", "/index")
    with pytest.raises(NoEngineError, match="Read-only file system"):
        search_compose("exec", "-T", "retriever", "touch", "/index/x")
    state = _inspected(search_compose)
    (mount,) = state["Mounts"]
    assert (mount["Destination"], mount["RW"]) == ("/index", False)


def test_the_container_is_hardened(search_compose: Compose) -> None:
    state = _inspected(search_compose)
    host = state["HostConfig"]
    assert state["Config"]["User"] == "10001:10001"
    assert (host["ReadonlyRootfs"], host["CapDrop"], host["Privileged"]) == (True, ["ALL"], False)
    assert host["Memory"] == host["MemorySwap"] == 2 << 30
    assert host["PidsLimit"] == 512
    assert "no-new-privileges:true" in host["SecurityOpt"]
    assert {binding["HostIp"] for bindings in host["PortBindings"].values() for binding in bindings} == {"127.0.0.1"}


def _inspected(compose: Compose) -> dict[str, Any]:
    found: list[dict[str, Any]] = json.loads(
        run("docker", "inspect", compose.state("retriever")["ID"], env=compose.env)
    )
    return found[0]


def test_without_an_index_nothing_is_made_up(search_compose: Compose, tmp_path: Path) -> None:
    env = {**search_compose.env, "ROLLBOX_INDEX": str(tmp_path / "absent"), "ROLLBOX_RETRIEVER_PORT": "0"}
    command = ("docker", "compose", "-p", f"{PROJECT}-absent", "--profile", "search")
    try:
        with pytest.raises(NoEngineError, match="absent"):
            run(*command, "up", "--detach", "--no-build", "retriever", env=env, cwd=REPOSITORY)
    finally:
        run(*command, "down", env=env, cwd=REPOSITORY)
    assert not (tmp_path / "absent").exists()


def test_the_image_builds_an_index_too_and_alone_asks_for_a_token(search_compose: Compose, tmp_path: Path) -> None:
    write_lines(tmp_path / "c.jsonl", records(20))
    (tmp_path / "out").mkdir()
    (tmp_path / "out").chmod(0o777)
    tmp_path.chmod(0o755)
    volumes = ("-v", f"{tmp_path}:/data:ro", "-v", f"{tmp_path / 'out'}:/out")
    done = run(
        "docker",
        "run",
        "--rm",
        *volumes,
        RETRIEVER_IMAGE,
        "index",
        "/data/c.jsonl",
        "--out",
        "/out",
        env=search_compose.env,
    )
    assert "20 passages of 1 file in /out" in done
    with pytest.raises(NoEngineError, match="Set ROLLBOX_RETRIEVER_TOKEN"):
        run("docker", "run", "--rm", "-v", f"{tmp_path / 'out'}:/index:ro", RETRIEVER_IMAGE, env=search_compose.env)


async def test_with_a_token_it_asks_for_it(search_compose: Compose) -> None:
    token = secrets.token_urlsafe(32)
    both = replace(search_compose, env={**search_compose.env, "ROLLBOX_RETRIEVER_TOKEN": token})
    both("--profile", "search", "up", "--detach", "--wait", "--no-build", "retriever")
    url = f"http://127.0.0.1:{search_compose.port}"
    async with aiohttp.ClientSession(url) as http:
        async with http.post("/retrieve", json={"queries": ["word7"]}) as reply:
            assert reply.status == 401
        shown = {"Authorization": f"Bearer {token}"}
        async with http.post("/retrieve", json={"queries": ["word7"]}, headers=shown) as reply:
            assert reply.status == 200


async def test_the_sandbox_beside_it_runs_programs(search_compose: Compose) -> None:
    port = search_compose("port", "sandbox", "8080").strip().rpartition(":")[2]
    async with Sandbox.connect(f"http://127.0.0.1:{port}", token=search_compose.token) as sandbox:
        assert (await sandbox.run(RunRequest(code="print(6 * 7)"))).stdout == "42\n"
