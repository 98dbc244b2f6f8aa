"""The OpenAPI description of routes that read and write their bodies themselves.

They do so for speed, and so FastAPI cannot know the models; here each route names them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from ..schemas.errors import ErrorKind

REF = "#/components/schemas/{model}"
ERRORS: Mapping[int, str] = {
    401: "The server has a token, and the request does not show it",
    413: "The body is larger than the server accepts",
    422: "The request is at fault",
    429: "The queue is full, or the client has too many requests; Retry-After says when to come back",
    500: "Unexpected error",
}


class ErrorAnswer(BaseModel):
    """Every answer but 200: `detail` is a sentence that names the field, or says what is wrong with the server."""

    kind: ErrorKind
    detail: str


class Description:
    """The models that the routes of one kind of server name.

    Args:
        errors: what other codes than 200 mean on each of them.
    """

    def __init__(self, errors: Mapping[int, str]) -> None:
        self._errors = errors
        self._named: set[type[BaseModel]] = set()

    def answers(
        self, model: type[BaseModel], media_type: str = "application/json", more: Mapping[int, str] | None = None
    ) -> dict[int | str, dict[str, Any]]:
        """The `responses=` of a route that answers with `model`, or with lines of it; `more` codes of its own."""
        if media_type == "application/json":
            found: dict[int | str, dict[str, Any]] = {200: {"model": model}}
        else:
            self._named.add(model)
            lines = {"schema": {"type": "string", "description": f"each line is a {model.__name__}"}}
            found = {200: {"description": "Successful Response", "content": {media_type: lines}}}
        errors = {**self._errors, **(more or {})}
        return found | {code: {"model": ErrorAnswer, "description": text} for code, text in errors.items()}

    def body_of(self, model: type[BaseModel]) -> dict[str, Any]:
        """The `openapi_extra=` of a route that reads `model` from its body."""
        self._named.add(model)
        content = {"application/json": {"schema": {"$ref": REF.format(model=model.__name__)}}}
        return {"requestBody": {"required": True, "content": content}}

    def describe(self, app: FastAPI, add_caps: Callable[[dict[str, Any]], None]) -> None:
        """Make `/openapi.json` hold the request models too. `add_caps` adds to them what this server allows."""

        def openapi() -> dict[str, Any]:
            if app.openapi_schema is None:
                schema = get_openapi(title=app.title, version=app.version, routes=app.routes)
                named = sorted(self._named, key=lambda model: model.__name__)
                _, definitions = models_json_schema([(model, "validation") for model in named], ref_template=REF)
                components = schema.setdefault("components", {}).setdefault("schemas", {})
                components.update(definitions.get("$defs", {}))
                add_caps(components)
                app.openapi_schema = schema
            return app.openapi_schema

        app.openapi = openapi  # type: ignore[method-assign]
