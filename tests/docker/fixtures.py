"""An engine, the image, and a running `docker compose up sandbox`, each made once."""

from __future__ import annotations

import json
import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from ..sandbox.targets import Target
from .engine import REPOSITORY, NoEngineError, build, engine, ensure_base, run

IMAGE = "rollbox-sandbox:test"
RETRIEVER_IMAGE = "rollbox-retriever:test"
PROJECT = f"rollbox-test-{os.getpid()}"


@dataclass(frozen=True)
class Compose:
    """`docker compose` for a project of the tests' own."""

    env: dict[str, str]
    token: str
    port: int
    project: str = PROJECT

    def __call__(self, *arguments: str) -> str:
        return run("docker", "compose", "-p", self.project, *arguments, env=self.env, cwd=REPOSITORY)

    def state(self, service: str = "sandbox") -> dict[str, str]:
        found: dict[str, str] = json.loads(self("ps", "--all", "--format", "json", service))
        return found


@pytest.fixture(scope="session")
def docker_env() -> Iterator[dict[str, str]]:
    """Variables that reach an engine which has the image; also set for this process, for the SDK."""
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        try:
            env = stack.enter_context(engine())
        except NoEngineError as error:
            if os.environ.get("CI"):
                pytest.fail(f"the container's tests must run here, and there is no Docker engine: {error}")
            pytest.skip(str(error))
        ensure_base(env)
        build(env, IMAGE)
        for name, value in env.items():
            patch.setenv(name, value)
        yield env


@pytest.fixture(scope="session")
def compose(docker_env: dict[str, str]) -> Compose:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    token = secrets.token_urlsafe(32)
    own = {"ROLLBOX_SANDBOX_IMAGE": IMAGE, "ROLLBOX_SANDBOX_TOKEN": token, "ROLLBOX_SANDBOX_PORT": str(port)}
    return Compose({**docker_env, **own}, token, port)


@pytest.fixture(scope="session")
def container(compose: Compose) -> Iterator[Target]:
    """The service, up and healthy; taken down at the end, after which nothing of it may be left."""
    try:
        compose("up", "--detach", "--wait", "--no-build", "sandbox")
        yield Target(f"http://127.0.0.1:{compose.port}", 8080, compose.token)
    finally:
        compose("down", "--volumes", "--timeout", "40")
