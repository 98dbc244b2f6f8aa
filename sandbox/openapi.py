"""The OpenAPI description of routes that read their bodies and write their answers themselves, for speed."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from ..schemas.errors import ErrorKind

_REF = "#/components/schemas/{model}"


class ErrorAnswer(BaseModel):
    """Every answer but 200. `detail` is a sentence."""

    kind: ErrorKind
    detail: str


Responses = dict[int | str, dict[str, Any]]
ERRORS: Responses = {
    413: {"model": ErrorAnswer, "description": "The body is too large."},
    422: {"model": ErrorAnswer, "description": "The request is at fault; `detail` names the field."},
    429: {"model": ErrorAnswer, "description": "The queue is full; `Retry-After` says when to come back."},
    500: {"model": ErrorAnswer, "description": "An error of ours that nobody foresaw."},
    503: {"model": ErrorAnswer, "description": "A failure of ours; the same request may well succeed."},
}


def answers(model: type[BaseModel]) -> Responses:
    """What a route answers that sends `model` when the program ran."""
    return {200: {"model": model, "description": "The program ran; its own failure is in the result."}, **ERRORS}


def body(model: type[BaseModel]) -> dict[str, Any]:
    """What a route reads that takes `model` as JSON."""
    schema = {"$ref": _REF.format(model=model.__name__)}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def describe(app: FastAPI, bodies: list[type[BaseModel]]) -> None:
    """Make `app` describe the models that its routes read."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = get_openapi(title=app.title, version=app.version, routes=app.routes)
            _, definitions = models_json_schema([(model, "validation") for model in bodies], ref_template=_REF)
            schemas = schema.setdefault("components", {}).setdefault("schemas", {})
            for name, definition in definitions.get("$defs", {}).items():
                schemas.setdefault(name, definition)
            app.openapi_schema = schema
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]
