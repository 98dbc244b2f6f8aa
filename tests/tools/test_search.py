"""The search tool over the shipped corpus, and its settings."""

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from rollbox.retrieval import shared_index
from rollbox.retrieval.bm25 import Bm25Index
from rollbox.schemas.errors import ConfigError, ErrorKind, InfraError, ToolError
from rollbox.tools.base import CallContext
from rollbox.tools.search import SearchTool

from .search_service import ask


async def test_the_shipped_corpus_is_the_default() -> None:
    text = await ask(SearchTool(), "What is the capital of Peru?")
    assert text.startswith('Doc 1 (Title: "Peru")\nPeru is a country')
    assert "Lima" in text
    assert text.count("(Title: ") == 3


def test_a_missing_library_is_said_when_the_tool_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tantivy", None)
    SearchTool({"retrieval_service_url": "http://127.0.0.1:9/retrieve"})
    with pytest.raises(ConfigError, match=r"local search needs tantivy: pip install 'rollbox\[search\]'"):
        SearchTool()


async def test_several_queries_are_parted_by_a_line() -> None:
    first, second = (await ask(SearchTool({"topk": 1}), "capital of Peru", "capital of Kenya")).split("\n---\n")
    assert first.startswith('Doc 1 (Title: "Peru")')
    assert second.startswith('Doc 1 (Title: "Kenya")')


async def test_metrics_count_the_hits() -> None:
    _, _, metrics = await SearchTool({"topk": 2}).execute("i", {"query_list": ["capital", "zzzz"]})
    assert metrics == {"hits": 2, "retries": 0, "cached": False}


async def test_no_hits_are_said_plainly() -> None:
    assert await ask(SearchTool(), "zzzz") == 'No passages found for "zzzz".'


@pytest.mark.parametrize("parameters", ["capital of Peru", {"query_list": "capital of Peru"}])
async def test_a_bare_string_is_one_query(parameters: Any) -> None:
    response, _, _ = await SearchTool({"topk": 1}).execute("i", parameters)
    assert response.text is not None
    assert response.text.startswith('Doc 1 (Title: "Peru")')


@pytest.mark.parametrize(
    "parameters",
    [{}, {"query_list": []}, {"query_list": [3]}, {"query_list": None}, {"query_list": ["ok", " "]}, "", [],
     {"query_list": ["q"] * 17}, {"query_list": ["q" * 2001]}],
)  # fmt: skip
async def test_unusable_arguments(parameters: Any) -> None:
    with pytest.raises(ToolError) as caught:
        await SearchTool().execute("i", parameters)
    assert caught.value.kind is ErrorKind.ARGUMENTS


async def test_concurrent_first_calls_build_one_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = tmp_path / "c.jsonl"
    corpus.write_text('{"id": "1", "contents": "\\"A\\"\\nalpha"}')
    monkeypatch.chdir(tmp_path)
    builds = []
    real = Bm25Index.from_jsonl

    def counted(path: Path) -> Bm25Index:
        builds.append(path)
        return real(path)

    monkeypatch.setattr(shared_index.Bm25Index, "from_jsonl", counted)
    tools = [SearchTool({"corpus": str(corpus)}), SearchTool({"corpus": "c.jsonl"})]
    assert builds == []
    texts = await asyncio.gather(*(ask(tool, "alpha") for tool in tools * 20))
    assert set(texts) == {'Doc 1 (Title: "A")\nalpha'}
    assert builds == [corpus.resolve()]


async def test_a_failed_build_is_tried_again(tmp_path: Path) -> None:
    corpus = tmp_path / "later.jsonl"
    tool = SearchTool({"corpus": str(corpus)})
    with pytest.raises(ConfigError, match=r"later\.jsonl"):
        await ask(tool, "alpha")
    corpus.write_text('{"id": "1", "text": "alpha"}')
    assert await ask(tool, "alpha") == "Doc 1\nalpha"


async def test_a_passed_deadline_is_an_infra_error() -> None:
    context = CallContext("t", 0, time.monotonic() - 1)
    with pytest.raises(InfraError, match="deadline"):
        await ask(SearchTool(), "Peru", context=context)


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"corpus": "a.jsonl", "retrieval_service_url": "http://h/retrieve"}, "not both"),
        ({"retrieval_service_url": "h/retrieve"}, "retrieval_service_url"),
        ({"topk": 0}, "topk"),
        ({"serper_url": "http://h/search"}, "serper_url and api_key belong together"),
        ({"searxng_url": "http://h", "corpus": "a"}, "give one of corpus, searxng_url, not both"),
        ({"layout": "fancy"}, "layout"),
        ({"top_k": 3}, "top_k"),
    ],
)
def test_wrong_settings_are_named(config: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        SearchTool(config)


def test_the_constructor_opens_nothing() -> None:
    SearchTool({"corpus": "/nowhere/at/all.jsonl"})
    SearchTool({"retrieval_service_url": "http://127.0.0.1:9/retrieve", "num_workers": 4, "rate_limit": 8})
