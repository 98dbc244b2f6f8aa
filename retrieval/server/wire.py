"""`POST /retrieve`: the formats of recipes that are in use. Which one is told by the fields of the request.

{"queries": [...], "topk"?, "return_scores"?}   Search-R1, verl, verl-tool, slime, ASearcher
    -> {"result": [[{"document": {"id", "contents"}, "score"}, ...], ...]}; without scores [[{"id", "contents"}]]
{"query": "...", "topk"?, "return_scores"?}     SkyRL: the same, with one inner list
{"query": "...", "top_k" or "k"}                rLLM
    -> {"query", "method", "results": [{"id", "content", "score"}], "num_results"}
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, RootModel, model_validator

from ...schemas.validation import number
from ..passages import Hit

DEFAULT_TOP_K = 3
_LIST = 'must be a list of strings, such as ["capital of Peru"]'


def _list_of_queries(value: Any) -> Any:
    """
    Raises:
        ValueError: it is no list.
    """
    if isinstance(value, str):
        raise ValueError(f"{_LIST}; a single one goes into `query`")
    if value is not None and not isinstance(value, list):
        raise ValueError(_LIST)
    return value


Count = Annotated[Annotated[int, Field(ge=1)] | None, BeforeValidator(number)]
Queries = Annotated[Annotated[list[str], Field(min_length=1)] | None, BeforeValidator(_list_of_queries)]


class RetrieveRequest(BaseModel):
    """Unknown fields are let be, as by the servers that clients of these formats were written for."""

    model_config = ConfigDict(
        extra="ignore",
        json_schema_extra={
            "oneOf": [
                {"required": ["queries"], "properties": {"queries": {"type": "array"}, "query": {"type": "null"}}},
                {"required": ["query"], "properties": {"query": {"type": "string"}, "queries": {"type": "null"}}},
            ],
        },
    )

    queries: Queries = None
    query: str | None = None
    topk: Count = None
    top_k: Count = None
    k: Count = None
    return_scores: bool = False
    client: str = Field(default="", max_length=128)

    @model_validator(mode="after")
    def _one_of_each(self) -> Self:
        if (self.queries is None) == (self.query is None):
            raise ValueError("one of `queries` (a list of strings) and `query` (a string) is needed")
        return self

    @property
    def asked(self) -> list[str]:
        return self.queries if self.queries is not None else [self.query or ""]

    @property
    def wanted(self) -> int:
        """Passages per query: the first of `topk`, `top_k` and `k` that is given."""
        return next((count for count in (self.topk, self.top_k, self.k) if count is not None), DEFAULT_TOP_K)

    def answer(self, results: Sequence[Sequence[Hit]], method: str) -> dict[str, Any]:
        """What is answered, as JSON. `method`: the name of the backend."""
        if self.query is not None and self.topk is None and (self.top_k, self.k) != (None, None):
            hits = [{"id": hit.id, "content": hit.contents, "score": hit.score} for hit in results[0]]
            return {"query": self.query, "method": method, "results": hits, "num_results": len(hits)}
        written = _scored if self.return_scores else _document
        return {"result": [[written(hit) for hit in hits] for hits in results]}


def _document(hit: Hit) -> dict[str, Any]:
    return {"id": hit.id, "contents": hit.contents}


def _scored(hit: Hit) -> dict[str, Any]:
    return {"document": _document(hit), "score": hit.score}


class Document(BaseModel):
    id: str
    contents: str


class ScoredDocument(BaseModel):
    document: Document
    score: float


class SearchR1Answer(BaseModel):
    result: list[list[ScoredDocument] | list[Document]]


class RllmPassage(BaseModel):
    id: str
    content: str
    score: float


class RllmAnswer(BaseModel):
    query: str
    method: str
    results: list[RllmPassage]
    num_results: int


class RetrieveAnswer(RootModel[SearchR1Answer | RllmAnswer]):
    """For the API's description; see `RetrieveRequest.answer`."""
