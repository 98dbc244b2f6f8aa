"""The settings of one search server."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from ..backend import BackendOptions


class RetrieverSettings(BaseModel):
    """What a search server is started with.

    Attributes:
        sources: an index folder, or the addresses of remote services.
        backend: one of `backends.BACKENDS`; empty takes the one that fits the sources.
        port: 0 takes a free one, which the server prints.
        slots: requests in work at a time. queue: requests that may wait for a slot; one more is answered with 429.
        max_per_client: requests that one `client` may have waiting or in work; one more gets 429. 0: no cap.
        timeout_s: seconds that an answer may take, and the most that a request may ask for.
        max_queries, max_top_k, max_query_chars: the most that a request may ask for. max_hits: queries times top_k.
        cache_hits: passages kept of answers already given; 0 keeps none. cache_ttl_s: for how long, where the passages
            come from another service.
        token_file: a file with the token that clients must show, in place of ROLLBOX_RETRIEVER_TOKEN.
        insecure: serve without a token even where other machines can connect.
        drain_s: how long SIGTERM waits for requests in work before it ends them.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    sources: list[str] = Field(min_length=1)
    backend: str = ""
    host: str = "127.0.0.1"
    port: int = Field(default=8081, ge=0, le=65_535)
    slots: int = Field(default=64, ge=1, le=65_536)
    queue: int = Field(default=1024, ge=0)
    max_per_client: int = Field(default=0, ge=0)
    timeout_s: float = Field(default=30.0, gt=0, le=3600)
    max_queries: int = Field(default=4096, ge=1)
    max_top_k: int = Field(default=100, ge=1)
    max_query_chars: int = Field(default=32_768, ge=1)
    max_hits: int = Field(default=50_000, ge=1)
    max_body_mb: int = Field(default=16, ge=1, le=1024)
    cache_hits: int = Field(default=100_000, ge=0)
    cache_ttl_s: float = Field(default=3600.0, gt=0)
    token_file: str = ""
    insecure: bool = False
    drain_s: int = Field(default=10, ge=0)
    options: BackendOptions = Field(default_factory=BackendOptions)
