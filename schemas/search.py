"""The typed call of a search server: `POST /v1/search`."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, field_validator

from .validation import number


class SearchRequest(BaseModel):
    """
    Attributes:
        queries: a blank one finds nothing. top_k: passages per query.
        timeout_s: seconds that the answer may take, the queue included; None takes the server's own.
        client: who asks; clients take turns in the queue.
    """

    model_config = ConfigDict(extra="forbid")

    queries: list[str] = Field(min_length=1)
    top_k: int = Field(default=3, ge=1)
    timeout_s: float | None = Field(default=None, gt=0)
    client: str = Field(default="", max_length=128)

    _numbers = field_validator("top_k", "timeout_s", mode="before")(number)


class FoundPassage(BaseModel):
    """`score` is the engine's own: comparable within one answer only."""

    id: str
    title: str
    text: str
    score: float


class SearchAnswer(BaseModel):
    """
    Attributes:
        results: for each query its passages, best first. backend: the engine's name.
        cached: nothing had to be asked of the engine. retries: of the engine, where it is a remote one.
        queue_ms: milliseconds before a slot was free. search_ms: from there to the answer.
    """

    results: list[list[FoundPassage]]
    backend: str
    cached: bool
    retries: int
    queue_ms: float
    search_ms: float
