"""What the adversarial and the conformance suites run against: servers of one's own, a container, or any address."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from rollbox.serving.bearer import environment_token

from .server_process import serving

CONTAINER = "container"
ADDRESS = "address"


@dataclass(frozen=True)
class Target:
    """A server to connect to. `port` is where it listens, as its programs would try it."""

    url: str
    port: int
    token: str | None = None


def target_names(config: pytest.Config, *own: str) -> list[object]:
    """For a fixture's `params`: `own` and the container, or only the address that `--sandbox-url` gives."""
    if config.getoption("--sandbox-url"):
        return [ADDRESS]
    return [*own, pytest.param(CONTAINER, marks=pytest.mark.docker)]


@contextmanager
def opened(name: str, request: pytest.FixtureRequest) -> Iterator[Target]:
    """The target of that name: `zygote` and `process` are servers with that pool and one slot."""
    if name == ADDRESS:
        url = str(request.config.getoption("--sandbox-url")).rstrip("/")
        yield Target(url, 8080, environment_token())
    elif name == CONTAINER:
        yield request.getfixturevalue("container")
    else:
        with serving("--slots", "1", "--pool", name, env={"ROLLBOX_TEST_SECRET": "s3cret"}) as server:
            yield Target(server.url, server.port)
