"""The server that is attacked, and what its slots look like before."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from rollbox.sandbox.client import Sandbox
from rollbox.schemas.run import RunLimits, RunRequest

from ..targets import Target, opened, target_names
from .probe import PROBE


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "target" in metafunc.fixturenames:
        metafunc.parametrize(
            "target", target_names(metafunc.config, "zygote", "process"), indirect=True, scope="session"
        )


@pytest.fixture(scope="session")
def target(request: pytest.FixtureRequest) -> Iterator[Target]:
    with opened(request.param, request) as target:
        yield target


@pytest.fixture
async def sandbox(target: Target) -> AsyncIterator[Sandbox]:
    async with Sandbox.connect(target.url, token=target.token) as client:
        yield client


async def probed(sandbox: Sandbox) -> dict[str, Any]:
    """What a program sees now."""
    result = await sandbox.run(RunRequest(code=PROBE, limits=RunLimits(wall_s=60)))
    assert result.status == "ok", result
    seen: dict[str, Any] = json.loads(result.stdout)
    return seen


_clean: dict[str, dict[str, Any]] = {}


@pytest.fixture
async def clean(target: Target, sandbox: Sandbox) -> dict[str, Any]:
    """What a program sees on a fresh slot of the server."""
    if target.url not in _clean:
        _clean[target.url] = await probed(sandbox)
    return _clean[target.url]
