"""The HTTP interface of a search server. `create_app` builds it around a backend that is open; `serve` runs it.

Other answers than 200 are JSON objects with `kind` and `detail`, as the sandbox server's: see `serving.error_answers`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import PlainTextResponse

from ... import __version__
from ...schemas.search import SearchAnswer, SearchRequest
from ...serving.access import BearerAuth
from ...serving.disconnect import while_connected
from ...serving.error_answers import answer_errors
from ...serving.http_body import BodyCap, read_model
from ...serving.openapi import ERRORS, Description
from .metrics import CONTENT_TYPE
from .searches import Found, Searches
from .settings import RetrieverSettings
from .wire import RetrieveAnswer, RetrieveRequest

_LARGE_HITS = 300
_API = Description({**ERRORS, 503: "The engine failed, or had no answer in time"})


def create_app(searches: Searches, settings: RetrieverSettings, backend: str, token: str | None = None) -> FastAPI:
    """
    Args:
        backend: its name. token: what clients must show on all routes but those of health; None asks for none.
    """
    app = FastAPI(title="Rollbox retriever", version=__version__)
    app.add_middleware(BodyCap, max_bytes=settings.max_body_mb << 20)
    if token is not None:
        app.add_middleware(BearerAuth, token=token)  # added last, so it is asked first
    answer_errors(app)
    _add_search_routes(app, searches, backend)
    _add_health_routes(app)
    _add_info_routes(app, searches, settings, backend)
    _API.describe(app, lambda components: _add_caps(components, settings))
    return app


def _add_search_routes(app: FastAPI, searches: Searches, backend: str) -> None:
    @app.post("/v1/search", openapi_extra=_API.body_of(SearchRequest), responses=_API.answers(SearchAnswer))
    async def search(request: Request) -> Response:
        """Search; answers with a SearchAnswer."""
        asked = await read_model(request, SearchRequest, mends=True)
        work = searches.search(asked.queries, asked.top_k, asked.timeout_s, asked.client)
        found = await while_connected(request, work)
        return await _json(found, lambda: _typed(found, backend))

    @app.post("/retrieve", openapi_extra=_API.body_of(RetrieveRequest), responses=_API.answers(RetrieveAnswer))
    async def retrieve(request: Request) -> Response:
        """Search-R1's call, and those of other recipes."""
        asked = await read_model(request, RetrieveRequest, mends=True)
        found = await while_connected(request, searches.search(asked.asked, asked.wanted, None, asked.client))
        return await _json(found, lambda: asked.answer(found.results, backend))


def _add_health_routes(app: FastAPI) -> None:
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    for path in ("/health", "/v1/health"):
        app.get(path)(health)

    @app.get("/v1/ping")
    async def ping() -> str:
        return "pong"


def _add_info_routes(app: FastAPI, searches: Searches, settings: RetrieverSettings, backend: str) -> None:
    @app.get("/v1/info")
    async def info() -> dict[str, Any]:
        """What is served, how much may be asked for, and how busy the server is."""
        counts = await asyncio.to_thread(searches.counts)
        return {
            "version": __version__,
            "backend": backend,
            **await asyncio.to_thread(searches.backend.info),
            "load": {name: counts[name] for name in ("in_work", "waiting", "slots", "queue_size")},
            "cache": {"hits": counts["cache_hits"], "misses": counts["cache_misses"]},
            "limits": settings.model_dump(
                include={
                    "timeout_s", "max_queries", "max_top_k", "max_query_chars", "max_hits", "max_body_mb",
                    "max_per_client",
                }
            ),
        }  # fmt: skip

    @app.get(
        "/metrics",
        response_class=PlainTextResponse,
        responses={200: {"content": {CONTENT_TYPE: {"schema": {"type": "string"}}}}},
    )
    async def metrics() -> PlainTextResponse:
        """Prometheus' text format."""
        return PlainTextResponse(await asyncio.to_thread(searches.metrics.text), media_type=CONTENT_TYPE)


def _typed(found: Found, backend: str) -> dict[str, Any]:
    return {
        "results": [
            [{"id": hit.id, "title": hit.title, "text": hit.text, "score": hit.score} for hit in hits]
            for hits in found.results
        ],
        "backend": backend,
        "cached": found.cached,
        "retries": found.retries,
        "queue_ms": found.queue_ms,
        "search_ms": found.search_ms,
    }


async def _json(found: Found, content: Callable[[], dict[str, Any]]) -> Response:
    large = sum(map(len, found.results)) > _LARGE_HITS
    body = await asyncio.to_thread(_encoded, content) if large else _encoded(content)
    return Response(body, media_type="application/json")


def _encoded(content: Callable[[], dict[str, Any]]) -> bytes:
    """As Starlette writes JSON, which is what Search-R1's server answers with."""
    return json.dumps(content(), ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode(errors="replace")


def _add_caps(components: dict[str, Any], settings: RetrieverSettings) -> None:
    query = {"maxLength": settings.max_query_chars}
    queries = {"maxItems": settings.max_queries}
    typed = components["SearchRequest"]["properties"]
    typed["queries"] |= queries
    typed["queries"]["items"] |= query
    typed["top_k"]["maximum"] = settings.max_top_k
    _of_type(typed["timeout_s"], "number")["maximum"] = settings.timeout_s
    wire = components["RetrieveRequest"]["properties"]
    listed = _of_type(wire["queries"], "array")
    listed |= queries
    listed["items"] |= query
    _of_type(wire["query"], "string").update(query)
    for name in ("topk", "top_k", "k"):
        _of_type(wire[name], "integer")["maximum"] = settings.max_top_k


def _of_type(schema: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(each for each in schema["anyOf"] if each["type"] == name)
    return found
