"""`POST /v1/batch`: many runs in one request, each answered by a line of JSON as it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from pydantic import BaseModel, ConfigDict, Field

from ..schemas.errors import ErrorKind, InfraError, ToolError
from ..schemas.run import RunRequest, RunResult

MOST_RUNS = 1024


class BatchRequest(BaseModel):
    """Attributes: runs: at most 1024; each is queued, limited and answered as if it had come alone."""

    model_config = ConfigDict(extra="forbid")

    runs: list[RunRequest] = Field(min_length=1, max_length=MOST_RUNS)


def check_each(requests: list[RunRequest], check: Callable[[RunRequest], None]) -> None:
    """Refuse the whole batch for what is wrong with one of it, before anything runs.

    Raises:
        ToolError: (kind `arguments`) naming the run and the field.
    """
    for index, request in enumerate(requests):
        try:
            check(request)
        except ToolError as error:
            raise ToolError(f"runs.{index}.{error}", error.kind) from error


class BatchError(BaseModel):
    """Why a run of a batch was not run."""

    kind: ErrorKind
    detail: str


class BatchLine(BaseModel):
    """One line of the answer. `index` counts the requests from 0; either `result` or `error` is set."""

    index: int
    result: RunResult | None = None
    error: BatchError | None = None


async def stream(
    requests: list[RunRequest], run: Callable[[RunRequest], Awaitable[RunResult]], at_a_time: int
) -> AsyncIterator[bytes]:
    """Yield a line for each run as it ends. Closing the iterator ends the runs that have not.

    Args:
        at_a_time: how many are with `run` at once: the rest of a batch must not fill a queue that others share.
    """
    room = asyncio.Semaphore(at_a_time)

    async def line(index: int, request: RunRequest) -> bytes:
        async with room:
            try:
                answer = BatchLine(index=index, result=await run(request))
            except (ToolError, InfraError) as error:
                answer = BatchLine(index=index, error=BatchError(kind=error.kind, detail=str(error)))
        return answer.model_dump_json(exclude_none=True).encode() + b"\n"

    tasks = [asyncio.create_task(line(index, request)) for index, request in enumerate(requests)]
    try:
        for ended in asyncio.as_completed(tasks):
            yield await ended
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
