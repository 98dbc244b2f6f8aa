"""SearchTool: passages for a model's queries, from a local index, a retrieval service or a web search engine."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from ..retrieval.backend import BackendOptions
from ..retrieval.backends import BACKENDS
from ..retrieval.bm25 import Bm25Index
from ..retrieval.bm25_text import require_tantivy
from ..retrieval.cache import CachedRetriever
from ..retrieval.lazy_backend import LazyBackend
from ..retrieval.passages import Hit, storable
from ..retrieval.remote_backends import replicated, showing
from ..retrieval.retriever import Retriever
from ..retrieval.services.web import SearxngRetriever, SerperRetriever
from ..retrieval.shared_index import SHIPPED_CORPUS, shared_index
from ..schemas.errors import ErrorKind, InfraError, ToolError
from ..schemas.tool import ToolResponse
from ..serving.bearer import RETRIEVER_TOKEN_VARIABLE, check_token, environment_token
from .base import BaseTool, CallContext, ToolConfig, ToolReturn
from .config_values import ConfigPath
from .search_text import Layout, answer_text

_MAX_QUERIES = 16
_MAX_QUERY_CHARS = 2_000
_OPENING_S = 600.0
_ADDRESS = r"^https?://[^/\s]+"
_SOURCES = ("corpus", "index", "backend_sources", "retrieval_service_url", "searxng_url", "serper_url")


Address = Annotated[str, Field(pattern=_ADDRESS)]


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


class SearchConfig(ToolConfig):
    """Settings of the search; most names are those of verl 0.7.1's search tool. Without a source: the shipped corpus.

    Attributes:
        corpus: a JSONL file of passages, searched in this process.
        index: a folder made by `rollbox retriever index`, opened in this process. backend: what searches it: `bm25`
            (the default), `dense` or `hybrid`.
        backend_sources: for the other backends of `rollbox retriever serve`, which `backend` names, such as
            `elasticsearch`: what they ask. backend_options: of all backends, see `BackendOptions`.
        retrieval_service_url: the whole address of a Search-R1 service, such as http://host:8000/retrieve; a list of
            them is of equal ones, and a call that fails goes to another.
        retrieval_token: what those services ask for; None takes it from ROLLBOX_RETRIEVER_TOKEN, where that is set.
        searxng_url: of a SearXNG instance, such as http://host:8888/search.
        serper_url: of Serper or what speaks like it, such as https://google.serper.dev/search; with `api_key`.
        topk: passages per query.
        timeout: seconds that a call to a service may take, retries included.
        num_workers, rate_limit: the smaller is the number of requests in flight per process.
        layout: how the passages are written, see `search_text`.
        skip_seen: leave out passages that the trajectory was shown already.
        cache_size: answers of a service that are kept in memory; 0 keeps none. cache_ttl_sec: for how long.
    """

    corpus: ConfigPath | None = None
    index: ConfigPath | None = None
    backend: str = ""
    backend_sources: list[str] | None = Field(default=None, min_length=1)
    backend_options: BackendOptions | None = None
    retrieval_service_url: Annotated[list[Address], Field(min_length=1), BeforeValidator(_as_list)] | None = None
    retrieval_token: str | None = Field(default=None, repr=False)
    searxng_url: str | None = Field(default=None, pattern=_ADDRESS)
    serper_url: str | None = Field(default=None, pattern=_ADDRESS)
    api_key: str | None = Field(default=None, min_length=1, repr=False)
    topk: int = Field(default=3, ge=1, le=100)
    timeout: float = Field(default=30.0, gt=0, le=3600)
    num_workers: int = Field(default=120, ge=1)
    rate_limit: int = Field(default=120, ge=1)
    layout: Layout = "verl"
    skip_seen: bool = False
    cache_size: int = Field(default=10_000, ge=0)
    cache_ttl_sec: float = Field(default=3600.0, gt=0)

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        given = [name for name in _SOURCES if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(f"give one of {', '.join(given)}, not both")
        if (self.serper_url is None) != (self.api_key is None):
            raise ValueError("serper_url and api_key belong together")
        if self.index is None and self.backend_sources is None and (self.backend or self.backend_options):
            raise ValueError("backend and backend_options need index or backend_sources")
        if self.backend_sources is not None and not self.backend:
            raise ValueError("backend_sources needs backend")
        return self

    @field_validator("retrieval_token")
    @classmethod
    def _token(cls, value: str | None) -> str | None:
        return None if value is None else check_token(value, "retrieval_token")  # as ConfigError: it shows no value

    @field_validator("backend")
    @classmethod
    def _known_backend(cls, backend: str) -> str:
        if backend and backend not in BACKENDS:
            raise ValueError(f"must be one of {', '.join(BACKENDS)}")
        return backend


class SearchTool(BaseTool):
    """Finds passages. The index is built at the first call, once per process and corpus.

    Raises:
        ConfigError: a corpus is to be searched here, and tantivy is not installed; and as `BaseTool`.
    """

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

    example: ClassVar[dict[str, Any] | None] = {"query_list": ["capital of Peru"]}

    def __init__(self, config: dict[str, Any] | None = None, tool_schema: Any = None) -> None:
        super().__init__(config, tool_schema)
        service = _service(self.config)
        if service is None:
            require_tantivy()
        size, ttl_s = self.config.cache_size, self.config.cache_ttl_sec
        self._service = CachedRetriever(service, size, ttl_s) if service is not None and size else service
        self._seen: dict[str, set[tuple[str, str]]] = {}

    async def create(self, instance_id: str | None = None, **kwargs: Any) -> tuple[str, ToolResponse]:
        instance_id, response = await super().create(instance_id, **kwargs)
        self._seen[instance_id] = set()
        return instance_id, response

    async def execute(self, instance_id: str, parameters: dict[str, Any] | str, **kwargs: Any) -> ToolReturn:
        """Search for each string of `parameters["query_list"]`; a bare string counts as one query.

        Returns:
            The passages as text, no step reward, and the metrics `hits`, `retries`, `cached` and `skipped`.

        Raises:
            ToolError: (arguments) no queries, blank ones, or too many.
            InfraError: the service fails beyond retries, or the deadline passes.
            ConfigError: the corpus cannot be read.
        """
        queries = _queries_of(parameters)
        context = kwargs.get("context")
        remaining_s = context.remaining_s() if isinstance(context, CallContext) else None
        retries, cached = 0, False
        if self._service is None:
            results = await self._search_locally(queries, remaining_s)
        else:
            # The first call to an index of this process may wait for a model to be loaded, as for a corpus to be read.
            timeout_s = self.config.timeout if self.config.index is None else _OPENING_S
            timeout_s = timeout_s if remaining_s is None else min(timeout_s, remaining_s)
            if isinstance(self._service, CachedRetriever):
                results, retries, cached = await self._service.search_cached(queries, self.config.topk, timeout_s)
            else:
                results, retries = await self._service.search(queries, self.config.topk, timeout_s)
        metrics: dict[str, Any] = {"hits": sum(map(len, results)), "retries": retries, "cached": cached}
        skipped = [0] * len(queries)
        if self.config.skip_seen:
            results, skipped = self._unseen(instance_id, results)
            metrics["skipped"] = sum(skipped)
        return ToolResponse(text=answer_text(queries, results, self.config.layout, skipped)), 0.0, metrics

    async def release(self, instance_id: str, **kwargs: Any) -> None:
        self._seen.pop(instance_id, None)

    async def aclose(self) -> None:
        """Close the connections to the service that the running event loop holds."""
        if self._service is not None:
            await self._service.aclose()

    def _unseen(self, instance_id: str, results: list[list[Hit]]) -> tuple[list[list[Hit]], list[int]]:
        """The hits that the trajectory was not shown before, and for each query how many it was."""
        seen = self._seen.setdefault(instance_id, set())
        kept: list[list[Hit]] = []
        for hits in results:
            new = [hit for hit in hits if (hit.title, hit.text) not in seen]
            seen.update((hit.title, hit.text) for hit in new)
            kept.append(new)
        return kept, [len(hits) - len(new) for hits, new in zip(results, kept, strict=True)]

    async def _search_locally(self, queries: list[str], remaining_s: float | None) -> list[list[Hit]]:
        corpus = Path(self.config.corpus) if self.config.corpus is not None else SHIPPED_CORPUS
        try:
            async with asyncio.timeout(remaining_s):
                index = await shared_index(corpus)
                return await asyncio.to_thread(_search_all, index, queries, self.config.topk)
        except TimeoutError:
            raise InfraError("search unavailable: the index was not ready before the deadline") from None


def _service(config: SearchConfig) -> Retriever | None:
    connections = min(config.num_workers, config.rate_limit)
    if config.index is not None:
        return LazyBackend(config.backend, [config.index], config.backend_options)
    if config.backend_sources is not None:
        return LazyBackend(config.backend, config.backend_sources, config.backend_options)
    if config.retrieval_service_url is not None:
        options = BackendOptions(connections=connections)
        token = config.retrieval_token or environment_token(RETRIEVER_TOKEN_VARIABLE)
        return replicated(config.retrieval_service_url, options, showing(token))
    if config.searxng_url is not None:
        return SearxngRetriever(config.searxng_url, connections)
    if config.serper_url is not None and config.api_key is not None:
        return SerperRetriever(config.serper_url, connections, config.api_key)
    return None


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
    # JSON carries half a surrogate pair, which is refused by services and by tokenizers.
    return [storable(query) for query in queries]
