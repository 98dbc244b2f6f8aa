"""Answers of a server that are no success: JSON objects with `kind` (an ErrorKind) and `detail` (a sentence).

422 and 413 the request is at fault, 401 it shows no token, 429 the server is full (with Retry-After), 503 ours.
"""

from __future__ import annotations

import math
from http import HTTPStatus

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.routing import Match

from ..schemas.errors import ErrorKind, OverloadedError, RollboxError, ToolError
from .disconnect import ClientGoneError

_CLIENT_CLOSED_REQUEST = 499


def answer_errors(app: FastAPI) -> None:
    """Let whatever a route of `app` raises be answered so."""
    app.add_exception_handler(RollboxError, _rollbox_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(ClientGoneError, _client_gone)
    app.add_exception_handler(Exception, _unexpected)


def error_answer(status: int, kind: ErrorKind, detail: str, headers: dict[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"kind": kind.value, "detail": detail}, status, headers)


def overloaded_answer(status: int, error: OverloadedError) -> JSONResponse:
    return error_answer(status, error.kind, str(error), {"Retry-After": str(math.ceil(error.retry_after_s))})


async def _rollbox_error(request: Request, error: Exception) -> Response:
    if isinstance(error, ToolError):
        return error_answer(HTTPStatus.UNPROCESSABLE_ENTITY, error.kind, str(error))
    if isinstance(error, OverloadedError):
        return overloaded_answer(HTTPStatus.TOO_MANY_REQUESTS, error)
    return error_answer(HTTPStatus.SERVICE_UNAVAILABLE, ErrorKind.INFRA, str(error))


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        headers["Allow"] = ", ".join(sorted(_methods(request)))
    return error_answer(error.status_code, ErrorKind.ARGUMENTS, str(error.detail), headers)


def _methods(request: Request) -> set[str]:
    """All that the path has. The framework names those of its first route only."""
    matching = (route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE)
    return {method for route in matching for method in getattr(route, "methods", None) or ()}


async def _client_gone(request: Request, error: Exception) -> Response:
    """Nobody reads this; the code is the one that proxies log for it."""
    return Response(status_code=_CLIENT_CLOSED_REQUEST)


async def _unexpected(request: Request, error: Exception) -> Response:
    """The traceback goes to the server's log, not to the client."""
    return error_answer(HTTPStatus.INTERNAL_SERVER_ERROR, ErrorKind.INFRA, "unexpected error; see the server's log")
