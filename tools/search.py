"""SearchTool: passages for a model's queries, from a local BM25 index or a retrieval service."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import Field, model_validator

from ..retrieval.bm25 import Bm25Index, Hit
from ..retrieval.remote import RemoteRetriever
from ..retrieval.shared_index import SHIPPED_CORPUS, shared_index
from ..schemas.errors import ErrorKind, InfraError, ToolError
from ..schemas.tool import ToolResponse
from .base import BaseTool, CallContext, ToolConfig, ToolReturn
from .config_values import ConfigPath

_MAX_QUERIES = 16
_MAX_QUERY_CHARS = 2_000


class SearchConfig(ToolConfig):
    """Settings of the search; the names are those of verl 0.7.1's search tool.

    Attributes:
        corpus: a JSONL file of passages, searched in this process. Neither this nor a url: the shipped corpus.
        retrieval_service_url: the whole address of a Search-R1 service, such as http://host:8000/retrieve.
        topk: passages per query.
        timeout: seconds that a call to the service may take, retries included.
        num_workers, rate_limit: the smaller is the number of requests in flight per process.
    """

    corpus: ConfigPath | None = None
    retrieval_service_url: str | None = Field(default=None, pattern=r"^https?://[^/\s]+")
    topk: int = Field(default=3, ge=1, le=100)
    timeout: float = Field(default=30.0, gt=0, le=3600)
    num_workers: int = Field(default=120, ge=1)
    rate_limit: int = Field(default=120, ge=1)

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if self.corpus is not None and self.retrieval_service_url is not None:
            raise ValueError("give corpus or retrieval_service_url, not both")
        return self


class SearchTool(BaseTool):
    """Finds passages. The index is built at the first call, once per process and corpus."""

    config_model: ClassVar[type[ToolConfig]] = SearchConfig
    config: SearchConfig
    default_schema: ClassVar[dict[str, Any] | None] = {
        "type": "function",
        "function": {
            "name": "search",
            "description": "Searches a collection of passages and returns the best ones for each query.",
            "parameters": {
                "type": "object",
                "properties": {
                    "query_list": {
                        "type": "array",
                        "items": {"type": "string"},
                        "description": f"One to {_MAX_QUERIES} queries, each a few words or a question.",
                    }
                },
                "required": ["query_list"],
            },
        },
    }

    def __init__(self, config: dict[str, Any] | None = None, tool_schema: Any = None) -> None:
        super().__init__(config, tool_schema)
        url = self.config.retrieval_service_url
        connections = min(self.config.num_workers, self.config.rate_limit)
        self._remote = RemoteRetriever(url, connections) if url is not None else None

    async def execute(self, instance_id: str, parameters: dict[str, Any] | str, **kwargs: Any) -> ToolReturn:
        """Search for each string of `parameters["query_list"]`; a bare string counts as one query.

        Returns:
            The passages as text, no step reward, and the metrics `hits` and `retries`.

        Raises:
            ToolError: (arguments) no queries, blank ones, or too many.
            InfraError: the service fails beyond retries, or the deadline passes.
            ConfigError: the corpus cannot be read.
        """
        queries = _queries_of(parameters)
        context = kwargs.get("context")
        remaining_s = context.remaining_s() if isinstance(context, CallContext) else None
        retries = 0
        if self._remote is not None:
            timeout_s = min(self.config.timeout, self.config.timeout if remaining_s is None else remaining_s)
            results, retries = await self._remote.search(queries, self.config.topk, timeout_s)
        else:
            results = await self._search_locally(queries, remaining_s)
        hits = sum(len(found) for found in results)
        return ToolResponse(text=_answer_text(queries, results)), 0.0, {"hits": hits, "retries": retries}

    async def aclose(self) -> None:
        """Close the connections to the service that the running event loop holds."""
        if self._remote is not None:
            await self._remote.aclose()

    async def _search_locally(self, queries: list[str], remaining_s: float | None) -> list[list[Hit]]:
        corpus = Path(self.config.corpus) if self.config.corpus is not None else SHIPPED_CORPUS
        try:
            async with asyncio.timeout(remaining_s):
                index = await shared_index(corpus)
                return await asyncio.to_thread(_search_all, index, queries, self.config.topk)
        except TimeoutError:
            raise InfraError("search unavailable: the index was not ready before the deadline") from None


def _search_all(index: Bm25Index, queries: list[str], top_k: int) -> list[list[Hit]]:
    return [index.search(query, top_k) for query in queries]


def _queries_of(parameters: Any) -> list[str]:
    given = parameters.get("query_list") if isinstance(parameters, dict) else parameters
    queries = [given] if isinstance(given, str) else given
    if not isinstance(queries, list) or not queries or not all(isinstance(query, str) for query in queries):
        raise ToolError(
            'search needs one argument "query_list", a list of strings such as ["capital of Peru"]',
            ErrorKind.ARGUMENTS,
        )
    if len(queries) > _MAX_QUERIES:
        raise ToolError(f"{len(queries)} queries are too many: at most {_MAX_QUERIES} a call", ErrorKind.ARGUMENTS)
    for position, query in enumerate(queries, start=1):
        if not query.strip():
            raise ToolError(f"query {position} of {len(queries)} is blank", ErrorKind.ARGUMENTS)
        if len(query) > _MAX_QUERY_CHARS:
            raise ToolError(
                f"query {position} has {len(query)} characters: at most {_MAX_QUERY_CHARS}", ErrorKind.ARGUMENTS
            )
    return queries


def _answer_text(queries: list[str], results: list[list[Hit]]) -> str:
    return "\n---\n".join(_passages_text(query, hits) for query, hits in zip(queries, results, strict=True))


def _passages_text(query: str, hits: list[Hit]) -> str:
    if not hits:
        return f'No passages found for "{query.strip()}".'
    return "\n\n".join(_passage_text(rank, hit) for rank, hit in enumerate(hits, start=1))


def _passage_text(rank: int, hit: Hit) -> str:
    return f'Doc {rank} (Title: "{hit.title}")\n{hit.text}' if hit.title else f"Doc {rank}\n{hit.text}"
