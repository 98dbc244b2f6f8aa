"""The OpenAPI description of the sandbox's routes, with the caps and languages of this server."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel

from ..serving.openapi import ERRORS, REF, Description
from .network import NetworkPolicy
from .settings import SandboxSettings
from .toolchains import Toolchain, Toolchains

_ERRORS = {
    **ERRORS,
    503: "The sandbox failed",
    504: "On /run_code, in place of 429: the code that SandboxFusion's clients try again",
}
_SESSION_ERRORS = {
    404: "There is no such session, and this server knows of none",
    409: "The session cannot be forked as it is, or the key was used for another cell",
    410: "The session is gone; `detail` says why, and `kind` whose doing it was",
}
_DESCRIPTION = Description(_ERRORS)
body_of = _DESCRIPTION.body_of


def answers(
    model: type[BaseModel], media_type: str = "application/json", *, of_session: bool = False
) -> dict[int | str, dict[str, Any]]:
    """The `responses=` of a route that answers with `model`, or with lines of it."""
    return _DESCRIPTION.answers(model, media_type, _SESSION_ERRORS if of_session else None)


def describe(app: FastAPI, settings: SandboxSettings, toolchains: Toolchains) -> None:
    """Make `/openapi.json` hold the request models too, with the caps and languages of this server."""
    _DESCRIPTION.describe(app, lambda components: _add_caps(components, settings, toolchains))


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
            then["tests"] = {"items": {"$ref": REF.format(model="StdioTest")}}
        else:
            then |= {"echo_last_expression": never, "figures": never}
    names = [language.name, *language.aliases]
    return {
        "if": {"properties": {"language": {"enum": names}}, "required": ["language"]},
        "then": {"properties": then},
    }
