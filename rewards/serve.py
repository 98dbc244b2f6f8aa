"""A scoring server for our own functions and rewards files, so that heavy scoring leaves the trainer.

HTTP 200 holds a score. 422: the request is at fault; 503: scoring failed through us, mask the sample or ask again. Both
say `kind` and `detail`. In a batch each item has its own `error` instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse

from .. import __version__
from ..schemas.errors import ConfigError, ErrorKind, InfraError, RollboxError
from ..schemas.score_api import BatchRequest, BatchResponse, ScoreRequest, ScoreResponse
from ..schemas.trajectory import Sample
from ..serving.access import BearerAuth, server_token
from ..serving.announced import AnnouncedServer, run_until_ended
from ..serving.disconnect import while_connected
from ..serving.ending import Ending
from ..serving.error_answers import answer_errors, error_answer
from ..serving.http_body import BodyCap, read_model
from ..serving.listening import address_of, listening
from .compose import RewardComposition
from .trajectory import trajectory_of_text

_MAX_BODY_MB = 64
_DRAIN_S = 30


def create_app(rewards: RewardComposition, token: str | None = None, concurrency: int = 64) -> FastAPI:
    """The server's interface to `rewards`, which it opens and closes with itself.

    Args:
        token: what clients must show on all routes but `/v1/health`; None asks for none.
        concurrency: answers scored at a time; others wait.
    """

    @asynccontextmanager
    async def opened(app: FastAPI) -> AsyncIterator[None]:
        async with rewards:
            yield

    app = FastAPI(title="Rollbox rewards", version=__version__, lifespan=opened)
    app.add_middleware(BodyCap, max_bytes=_MAX_BODY_MB << 20)
    if token is not None:
        app.add_middleware(BearerAuth, token=token)
    free = asyncio.Semaphore(concurrency)

    async def scored(item: ScoreRequest) -> ScoreResponse:
        async with free:
            return await score_request(rewards, item)

    async def in_batch(item: ScoreRequest) -> ScoreResponse:
        try:
            return await scored(item)
        except RollboxError as error:
            return ScoreResponse(error=str(error))

    @app.get("/v1/health")
    async def health() -> dict[str, str]:
        return {"status": "ok", "version": __version__}

    @app.post("/score")
    async def one(request: Request) -> JSONResponse:
        item = await read_model(request, ScoreRequest, mends=True)
        return JSONResponse((await while_connected(request, scored(item))).model_dump())

    @app.post("/v1/score/batch")
    async def batch(request: Request) -> JSONResponse:
        items = (await read_model(request, BatchRequest, mends=True)).items
        results = await while_connected(request, _all([in_batch(item) for item in items]))
        return JSONResponse(BatchResponse(results=results).model_dump())

    answer_errors(app)
    app.add_exception_handler(ConfigError, _refused)
    return app


async def score_request(rewards: RewardComposition, item: ScoreRequest) -> ScoreResponse:
    """Score one answer.

    Raises:
        ConfigError: its data source or ground truth. InfraError: scoring failed.
    """
    sample = Sample(
        sample_id="request",
        data_source=item.data_source,
        messages=item.messages or [{"role": "user", "content": ""}],
        ground_truth=item.ground_truth,
        extra_info=item.extra_info,
    )
    found = await rewards.score(trajectory_of_text(sample, item.solution_str))
    if found is None:
        raise InfraError("it has no score")
    return ScoreResponse(score=found.total, correct=found.correct, parts=found.raw)


def serve(rewards: RewardComposition, host: str, port: int, *, insecure: bool = False, concurrency: int = 64) -> None:
    """Serve until SIGTERM or SIGINT, then drain: answers in work get half a minute. Prints the address once it listens.

    Raises:
        ConfigError: the address cannot be bound, others than this machine can connect and no token is set, or as
            entering `rewards`. InfraError: as entering `rewards`.
    """
    token = server_token(host, None, insecure, could="score answers, and run programs where a score does")
    listener = listening(host, port)
    app = create_app(rewards, token, concurrency)
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, lifespan="off", timeout_graceful_shutdown=_DRAIN_S
    )
    said = f"rewards on {address_of(host, listener)}"

    async def run(ending: Ending) -> None:
        async with rewards:  # and not in the app's lifespan: uvicorn would print a traceback for a wrong setting
            await AnnouncedServer(config, said, ending).serve(sockets=[listener])

    run_until_ended(run)


async def _all(work: list[Coroutine[Any, Any, ScoreResponse]]) -> list[ScoreResponse]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one) for one in work]
    return [task.result() for task in tasks]


async def _refused(request: Request, error: Exception) -> Response:
    """A data source or ground truth that cannot be scored is the request's fault here, not the server's."""
    return error_answer(HTTPStatus.UNPROCESSABLE_ENTITY, ErrorKind.ARGUMENTS, str(error))
