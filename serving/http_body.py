"""Request bodies: capped, and read without blocking the event loop."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import TypeVar

from fastapi import HTTPException, Request
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..schemas.errors import ErrorKind, ToolError
from ..schemas.surrogates import wire_json
from ..schemas.validation import describe
from .disconnect import ClientGoneError

M = TypeVar("M", bound=BaseModel)
_LARGE_BYTES = 262_144


async def read_model(request: Request, model: type[M], *, mends: bool = False) -> M:
    """The body as `model`.

    Args:
        mends: half a surrogate pair, as a model can write it and its client passes it on, becomes U+FFFD; otherwise the
            request is refused for it.

    Raises:
        ToolError: (kind `arguments`) it does not fit; the text names each field.
        HTTPException: 413, larger than the cap. ClientGoneError: the client disconnected before its end.
    """
    try:
        body = await request.body()
    except ClientDisconnect as error:
        raise ClientGoneError from error
    read = partial(_mended, model) if mends else model.model_validate_json
    try:
        return read(body) if len(body) < _LARGE_BYTES else await asyncio.to_thread(read, body)
    except ValidationError as error:
        raise ToolError(describe(error, model), ErrorKind.ARGUMENTS) from error


def _mended(model: type[M], body: bytes) -> M:
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        if error.errors(include_input=False)[0]["type"] != "json_invalid" or b"\\u" not in body:
            raise
        try:
            mended = wire_json(json.loads(body))
        except (ValueError, RecursionError):
            raise error from None
        return model.model_validate_json(mended)


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
