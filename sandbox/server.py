"""The HTTP server of the sandbox. `create_app` builds it around a ready pool; `serve` runs it.

HTTP 200 means that the program ran: its own failure is in the result. Other answers are JSON objects with `kind`
(an ErrorKind) and `detail` (a sentence): 422 and 413 the request is at fault, 401 it shows no token, 429 the queue is
full or the client has too many runs, 503 ours.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import asdict
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import PlainTextResponse, StreamingResponse

from .. import __version__
from ..schemas.errors import OverloadedError, SandboxError
from ..schemas.judge import JudgeLine, JudgeRequest
from ..schemas.run import RunLimits, RunRequest, RunResult
from ..serving.access import BearerAuth
from ..serving.disconnect import while_connected
from ..serving.error_answers import answer_errors, error_answer, overloaded_answer
from ..serving.http_body import BodyCap, read_model
from .batch import BatchLine, BatchRequest, check_each, stream
from .http_answers import json_answer
from .judge.judge import Judge
from .judge.replay import Replay
from .metrics import CONTENT_TYPE, Metrics
from .network import NetworkPolicy
from .openapi import answers, body_of, describe
from .pool import Pool
from .runs import Runs
from .sandbox_fusion import RunCodeRequest, RunCodeResponse
from .session_errors import SessionRefusedError
from .session_routes import add_session_routes
from .sessions import Sessions
from .settings import SandboxSettings
from .siblings import ASKED_BY_SIBLING, SessionsByWorker, Siblings
from .toolchains import Toolchains
from .totals import added_metrics, added_pools


def create_app(
    pool: Pool,
    settings: SandboxSettings,
    layers: tuple[str, ...] = (),
    token: str | None = None,
    siblings: Siblings | None = None,
    metrics: Metrics | None = None,
    sessions: Sessions | None = None,
) -> FastAPI:
    """The sandbox's HTTP interface to `pool`, which must be open and stay so.

    Args:
        layers: names of the isolation layers that were verified, for `/v1/info`.
        token: what clients must show on all routes but `/v1/health` and `/v1/ping`; None asks for none.
        siblings: the other workers of the server, open; None for one that is alone.
        sessions: open, too; None for a pool that can have none.
    """
    app = FastAPI(title="Rollbox sandbox", version=__version__)
    toolchains = Toolchains()
    siblings = siblings or Siblings()
    runs = Runs(pool, settings, metrics or Metrics(pool), toolchains, siblings)
    if siblings.workers > 1:
        app.add_middleware(SessionsByWorker, siblings=siblings)
    app.add_middleware(BodyCap, max_bytes=settings.max_body_mb << 20)
    if token is not None:
        app.add_middleware(BearerAuth, token=token)  # added last, so it is asked first
    answer_errors(app)
    app.add_exception_handler(SessionRefusedError, _session_refused)
    _add_run_routes(app, runs)
    add_session_routes(app, sessions, siblings)
    _add_judge_route(app, runs)
    _add_health_routes(app)
    _add_info_route(app, pool, settings, layers, runs, sessions)
    _add_metrics_route(app, runs)
    describe(app, settings, toolchains)
    return app


def _add_run_routes(app: FastAPI, runs: Runs) -> None:
    @app.post("/v1/run", openapi_extra=body_of(RunRequest), responses=answers(RunResult))
    async def run(request: Request) -> Response:
        """Run a program; answers with a RunResult."""
        asked = await read_model(request, RunRequest)
        return await json_answer(await while_connected(request, runs.run(asked)))

    @app.post("/v1/batch", openapi_extra=body_of(BatchRequest), responses=answers(BatchLine, "application/x-ndjson"))
    async def batch(request: Request) -> StreamingResponse:
        """Run many programs; answers with a line of JSON for each as it ends, in any order."""
        asked = await read_model(request, BatchRequest)
        check_each(asked.runs, runs.check)
        lines = stream(asked.runs, runs.run, runs.at_a_time)
        return StreamingResponse(lines, media_type="application/x-ndjson")

    @app.post("/run_code", openapi_extra=body_of(RunCodeRequest), responses=answers(RunCodeResponse))
    async def run_code(request: Request) -> Response:
        """SandboxFusion's call."""
        asked = (await read_model(request, RunCodeRequest)).to_run_request()
        try:
            answer = RunCodeResponse.from_result(await while_connected(request, runs.run(asked)))
        except SandboxError as error:
            answer = RunCodeResponse.from_error(error)
        except OverloadedError as error:
            # verl's client retries 504 and nothing else; after a 429 it would count the test as failed.
            return overloaded_answer(HTTPStatus.GATEWAY_TIMEOUT, error)
        return await json_answer(answer)


def _add_judge_route(app: FastAPI, runs: Runs) -> None:
    judge = Judge(runs)
    replay = Replay()

    @app.post("/v1/judge", openapi_extra=body_of(JudgeRequest), responses=answers(JudgeLine, "application/x-ndjson"))
    async def judged(request: Request) -> Response:
        """Judge a program by many tests; answers with a line of JSON for each as it ends."""
        asked = await read_model(request, JudgeRequest)
        owner = runs.siblings.elsewhere(asked.idempotency_key)
        if owner is not None:
            return await runs.siblings.forward(request, owner)
        judge.check(asked)
        lines = await replay.lines(asked, judge.lines)
        try:
            # Until the first line all that goes wrong has a status of its own.
            first = await while_connected(request, anext(lines))
        except BaseException:
            await lines.aclose()
            raise
        return StreamingResponse(_after(first, lines), media_type="application/x-ndjson")


async def _after(first: bytes, rest: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    async with aclosing(rest):
        yield first
        async for line in rest:
            yield line


def _add_metrics_route(app: FastAPI, runs: Runs) -> None:
    @app.get(
        "/metrics",
        response_class=PlainTextResponse,
        responses={200: {"content": {CONTENT_TYPE: {"schema": {"type": "string"}}}}},
    )
    async def metrics(request: Request) -> PlainTextResponse:
        """Prometheus' text format."""
        texts = [runs.metrics.text()]
        if ASKED_BY_SIBLING not in request.headers:
            texts += await runs.siblings.answers("/metrics")
        text = texts[0] if len(texts) == 1 else added_metrics([each.decode() for each in texts])
        return PlainTextResponse(text, media_type=CONTENT_TYPE)


def _add_health_routes(app: FastAPI) -> None:
    @app.get("/v1/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/v1/ping")
    async def ping() -> str:
        return "pong"


def _add_info_route(
    app: FastAPI,
    pool: Pool,
    settings: SandboxSettings,
    layers: tuple[str, ...],
    runs: Runs,
    sessions: Sessions | None,
) -> None:
    toolchains = runs.programs.toolchains

    allowed_hosts = NetworkPolicy(settings.allow_hosts).names

    @app.get("/v1/info")
    async def info(request: Request) -> dict[str, Any]:
        pools = [asdict(pool.info())]
        if ASKED_BY_SIBLING not in request.headers:
            pools += [json.loads(text)["pool"] for text in await runs.siblings.answers("/v1/info")]
        return {
            "version": __version__,
            "languages": await toolchains.versions(),
            "languages_absent": toolchains.absent,
            "packages": pool.packages(),
            "python": ".".join(map(str, sys.version_info[:3])),
            "isolation": list(layers),
            "pool": added_pools(pools),
            "workers": {"all": settings.workers, "serving": len(pools)},
            "sessions": None if sessions is None else {"live": sessions.live, "most": settings.max_sessions},
            "allowed_hosts": allowed_hosts,
            "default_limits": RunLimits().model_dump(),
            "max_per_client": settings.max_per_client,
            "max_wall_s": settings.max_wall_s,
            "max_memory_mb": settings.max_memory_mb,
            "max_body_mb": settings.max_body_mb,
        }


async def _session_refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, SessionRefusedError)
    return error_answer(error.status, error.kind, str(error))
