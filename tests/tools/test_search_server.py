"""The search tool over HTTP against our own server, as the model, `rollbox tools check` and a rollout use it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rollbox.schemas.errors import ConfigError, ErrorKind, InfraError
from rollbox.schemas.tool import ToolCall
from rollbox.tools.dispatch import ToolBox
from rollbox.tools.search import SearchTool

from ..retrieval.corpora import build, serving, write_lines

TOKEN = "correct-horse-battery-staple"
RECORDS: list[dict[str, Any]] = [
    {"id": "peru", "contents": '"Peru"\nLima is the capital of Perú.'},
    {"id": "kenya", "contents": '"Kenya"\nNairobi is the capital of Kenya.'},
    {"id": "untitled", "text": "Santiago is the capital of Chile."},
]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("search")
    build(write_lines(folder / "c.jsonl", RECORDS), folder / "index")
    with serving(folder / "index", "--max-top-k", "10") as address:
        yield f"{address}/retrieve"


async def call(tool: SearchTool, **arguments: Any) -> Any:
    async with ToolBox({"search": tool}).trajectory("t") as trajectory:
        answer = await trajectory.call(ToolCall(name="search", arguments=arguments), 0, 0)
    await tool.aclose()
    return answer


async def test_a_call_goes_through_to_the_index_and_back(url: str) -> None:
    tool = SearchTool({"retrieval_service_url": url, "topk": 1})
    answer = await call(tool, query_list=["capital of Peru", "Santiago", "unheard"])
    assert answer.record.error_kind is None
    assert answer.response.text == (
        'Doc 1 (Title: "Peru")\nLima is the capital of Perú.\n---\n'
        'Doc 1\nSantiago is the capital of Chile.\n---\nNo passages found for "unheard".'
    )
    assert answer.record.metrics == {"hits": 2}


@pytest.mark.parametrize(
    ("layout", "text"),
    [
        ("search_r1", '<information>Doc 1(Title: "Kenya") Nairobi is the capital of Kenya.</information>'),
        ("plain", "Doc 1: Nairobi is the capital of Kenya."),
    ],
)
async def test_layouts(url: str, layout: str, text: str) -> None:
    tool = SearchTool({"retrieval_service_url": url, "topk": 1, "layout": layout})
    assert (await call(tool, query_list=["Nairobi"])).response.text == text


async def test_a_setting_beyond_the_servers_is_a_failure_of_ours_and_not_the_models(url: str) -> None:
    answer = await call(SearchTool({"retrieval_service_url": url, "topk": 11}), query_list=["Lima"])
    assert answer.record.error_kind is ErrorKind.INFRA
    assert answer.record.retries == 0
    assert "at most 10 passages per query on this server" in (answer.record.error or "")


async def test_the_token_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build(write_lines(tmp_path / "c.jsonl", RECORDS), tmp_path / "index")
    with serving(tmp_path / "index", env={"ROLLBOX_RETRIEVER_TOKEN": TOKEN}) as address:
        config = {"retrieval_service_url": f"{address}/retrieve", "topk": 1}
        for more in ({}, {"retrieval_token": "wrong"}):
            with pytest.raises(InfraError, match=r"HTTP 401.*a token is needed") as caught:
                await asked(SearchTool(config | more))
            assert caught.value.retries == 0
        tool = SearchTool(config | {"retrieval_token": TOKEN})
        assert TOKEN not in repr(tool.config)
        assert "Lima" in await asked(tool)
        monkeypatch.setenv("ROLLBOX_RETRIEVER_TOKEN", TOKEN)
        assert "Lima" in await asked(SearchTool(config))
        # A server before a server shows it too, and asks for it.
        with serving(f"{address}/retrieve") as outer:
            assert "Lima" in await asked(SearchTool({"retrieval_service_url": f"{outer}/retrieve", "topk": 1}))
    with pytest.raises(ConfigError, match="retrieval_token: a token consists of printable"):
        SearchTool({"retrieval_token": "two words"})


async def asked(tool: SearchTool) -> str:
    try:
        response, _, _ = await tool.execute("i", {"query_list": ["Lima"]})
    finally:
        await tool.aclose()
    return response.text or ""


def test_rollbox_tools_check_works_with_it(url: str, tmp_path: Path) -> None:
    (tmp_path / "tools.yaml").write_text(
        "tools:\n  - class_name: rollbox.tools.search.SearchTool\n"
        f"    config: {{type: native, retrieval_service_url: {url}}}\n"
    )
    command = [sys.executable, "-m", "rollbox.cli", "tools", "check", str(tmp_path / "tools.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "search: ok" in done.stdout
    assert "Lima is the capital" in done.stdout
