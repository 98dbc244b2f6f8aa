"""The OpenAPI description of routes that read and write their bodies themselves.

They do so for speed, and so FastAPI cannot know the models; here each route names them.
"""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from ..schemas.errors import ErrorKind
from .network import NetworkPolicy
from .settings import SandboxSettings
from .toolchains import Toolchain, Toolchains

_REF = "#/components/schemas/{model}"


class ErrorAnswer(BaseModel):
    """Every answer but 200: `detail` is a sentence that names the field, or says what is wrong with the server."""

    kind: ErrorKind
    detail: str


_ERRORS = {
    401: "The server has a token, and the request does not show it",
    413: "The body is larger than the server accepts",
    422: "The request is at fault",
    429: "The queue is full, or the client has too many runs; Retry-After says when to come back",
    500: "Unexpected error",
    503: "The sandbox failed",
    504: "On /run_code, in place of 429: the code that SandboxFusion's clients try again",
}
_SESSION_ERRORS = {
    404: "There is no such session, and this server knows of none",
    409: "The session cannot be forked as it is, or the key was used for another cell",
    410: "The session is gone; `detail` says why, and `kind` whose doing it was",
}
_NAMED: set[type[BaseModel]] = set()


def answers(
    model: type[BaseModel], media_type: str = "application/json", *, of_session: bool = False
) -> dict[int | str, dict[str, Any]]:
    """The `responses=` of a route that answers with `model`, or with lines of it."""
    errors = _ERRORS | _SESSION_ERRORS if of_session else _ERRORS
    if media_type == "application/json":
        found: dict[int | str, dict[str, Any]] = {200: {"model": model}}
    else:
        _NAMED.add(model)
        lines = {"schema": {"type": "string", "description": f"each line is a {model.__name__}"}}
        found = {200: {"description": "Successful Response", "content": {media_type: lines}}}
    return found | {code: {"model": ErrorAnswer, "description": text} for code, text in errors.items()}


def body_of(model: type[BaseModel]) -> dict[str, Any]:
    """The `openapi_extra=` of a route that reads `model` from its body."""
    _NAMED.add(model)
    content = {"application/json": {"schema": {"$ref": _REF.format(model=model.__name__)}}}
    return {"requestBody": {"required": True, "content": content}}


def describe(app: FastAPI, settings: SandboxSettings, toolchains: Toolchains) -> None:
    """Make `/openapi.json` hold the request models too, with the caps and languages of this server."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = get_openapi(title=app.title, version=app.version, routes=app.routes)
            named = sorted(_NAMED, key=lambda model: model.__name__)
            _, definitions = models_json_schema([(model, "validation") for model in named], ref_template=_REF)
            components = schema.setdefault("components", {}).setdefault("schemas", {})
            components.update(definitions.get("$defs", {}))
            _add_caps(components, settings, toolchains)
            app.openapi_schema = schema
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _add_caps(components: dict[str, Any], settings: SandboxSettings, toolchains: Toolchains) -> None:
    limits = components["RunLimits"]["properties"]
    limits["wall_s"]["maximum"] = settings.max_wall_s
    cell_wall = components["CellRequest"]["properties"]["wall_s"]
    next(each for each in cell_wall["anyOf"] if each["type"] == "number")["maximum"] = settings.max_wall_s
    limits["memory_mb"]["maximum"] = settings.max_memory_mb
    limits["compile_wall_s"]["maximum"] = settings.max_wall_s
    judge_limits = components["JudgeLimits"]["properties"]
    for field in ("wall_s", "memory_mb", "compile_wall_s"):
        judge_limits[field]["maximum"] = limits[field]["maximum"]
    components["CheckerComparison"]["properties"]["language"]["enum"] = list(toolchains.languages)
    for model in ("RunRequest", "RunCodeRequest", "JudgeRequest"):
        components[model]["properties"]["language"]["enum"] = list(toolchains.languages)
        components[model]["allOf"] = [_needs(toolchain, model) for toolchain in toolchains.foreign]
    run = components["RunRequest"]["properties"]
    hosts = NetworkPolicy(settings.allow_hosts).names
    run["allow_hosts"] |= {"items": {"type": "string", "enum": hosts}} if hosts else {"items": False}
    memory_mb = {"minimum": limits["memory_mb"]["minimum"], "maximum": settings.max_memory_mb}
    for model, walls in (
        ("RunCodeRequest", ("run_timeout", "compile_timeout")),
        ("RunJupyterRequest", ("total_timeout",)),
    ):
        fields = components[model]["properties"]
        for wall in walls:
            fields[wall]["maximum"] = settings.max_wall_s
        fields["memory_limit_MB"] = {
            "description": "MiB; null, 0 and less take the default",
            "default": -1,
            "anyOf": [{"type": "null"}, {"type": "integer", "maximum": 0}, {"type": "integer", **memory_mb}],
        }


def _needs(toolchain: Toolchain, model: str) -> dict[str, Any]:
    """What a request in one language must and cannot ask for."""
    language, needs = toolchain.language, toolchain.language.needs
    if model == "RunCodeRequest":
        least = {"anyOf": [{"type": "null"}, {"type": "integer", "maximum": 0}, {"minimum": needs.memory_mb}]}
        then: dict[str, Any] = {"memory_limit_MB": least}
    else:
        limits = {"processes": {"minimum": needs.processes}, "memory_mb": {"minimum": needs.memory_mb}}
        never = {"const": False}
        then = {"limits": {"properties": limits}}
        if model == "JudgeRequest":
            then["tests"] = {"items": {"$ref": _REF.format(model="StdioTest")}}
        else:
            then |= {"echo_last_expression": never, "figures": never}
    names = [language.name, *language.aliases]
    return {
        "if": {"properties": {"language": {"enum": names}}, "required": ["language"]},
        "then": {"properties": then},
    }
