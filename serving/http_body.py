"""Request bodies: capped, and read without blocking the event loop."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from fastapi import HTTPException, Request
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..schemas.errors import ErrorKind, ToolError
from ..schemas.validation import describe
from .disconnect import ClientGoneError

M = TypeVar("M", bound=BaseModel)
_LARGE_BYTES = 262_144


async def read_model(request: Request, model: type[M]) -> M:
    """The body as `model`.

    Raises:
        ToolError: (kind `arguments`) it does not fit; the text names each field.
        HTTPException: 413, larger than the cap. ClientGoneError: the client disconnected before its end.
    """
    try:
        body = await request.body()
    except ClientDisconnect as error:
        raise ClientGoneError from error
    try:
        if len(body) < _LARGE_BYTES:
            return model.model_validate_json(body)
        return await asyncio.to_thread(model.model_validate_json, body)
    except ValidationError as error:
        raise ToolError(describe(error, model), ErrorKind.ARGUMENTS) from error


class BodyCap:
    """ASGI middleware: 413 for a body over `max_bytes`, declared or not."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        received = 0

        async def capped() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._max_bytes:
                raise HTTPException(413, f"the request body is larger than {self._max_bytes} bytes")
            return message

        await self._app(scope, capped, send)
