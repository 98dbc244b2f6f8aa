"""`docker compose up sandbox`: healthy, hardened, right, and gone after `down`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from rollbox.sandbox.client import Sandbox
from rollbox.sandbox.container import owner
from rollbox.sandbox.jail import policy
from rollbox.sandbox.seccomp_profile import BUILDING, profile
from rollbox.schemas.run import RunLimits, RunRequest

from ..sandbox.targets import Target
from .engine import BASE, REPOSITORY, build, run
from .fixtures import IMAGE, PROJECT, Compose

pytestmark = pytest.mark.docker

# The workloads by which the sandbox's speed is measured; W5 is below.
WORKLOADS = {
    "W1": ("print(1+1)", None, "2\n"),
    "W2": ("import numpy as np; print(np.linalg.inv(np.eye(50)).sum())", None, "50.0\n"),
    "W3": ("import sympy as sp; x=sp.symbols('x'); print(sp.solve(x**2-5*x+6))", None, "[2, 3]\n"),
    "W4": ("import pandas as pd; print(pd.DataFrame({'a':range(100)}).a.sum())", None, "4950\n"),
    "W6": ("n = int(input())\na = list(map(int, input().split()))\nprint(max(a), sum(a) % 7)", "3\n4 -1 9\n", "9 5\n"),
}


@pytest.mark.parametrize("name", WORKLOADS)
async def test_workloads_are_right(container: Target, name: str) -> None:
    code, stdin, expected = WORKLOADS[name]
    async with Sandbox.connect(container.url, token=container.token) as sandbox:
        result = await sandbox.run(RunRequest(code=code, stdin=stdin, limits=RunLimits(wall_s=60)))
    assert (result.status, result.stdout) == ("ok", expected), result


async def test_turns_that_share_their_state_are_right(container: Target) -> None:
    cells = [
        "x = 41",
        "import math\ndef f(n):\n    return math.factorial(n) % 1000007",
        "x += 1\nprint(x)",
        "print(f(5))",
    ]
    headers = {"Authorization": f"Bearer {container.token}"}
    async with (
        aiohttp.ClientSession(container.url, headers=headers) as http,
        http.post("/run_jupyter", json={"cells": cells}) as response,
    ):
        answer = await response.json()
    assert [cell["stdout"] for cell in answer["cells"]] == ["", "", "42\n", "120\n"]


async def test_it_is_healthy_isolated_and_closed_without_the_token(container: Target, compose: Compose) -> None:
    assert compose.state()["Health"] == "healthy"
    async with aiohttp.ClientSession(container.url) as http:
        async with http.get("/v1/health") as response:
            assert response.status == 200
        async with http.post("/v1/run", json={"code": "print(1)"}) as response:
            assert response.status == 401
    async with Sandbox.connect(container.url, token=container.token) as sandbox:
        info = await sandbox.info()
    assert {"seccomp", "user namespace", "no capabilities", "read-only root", "no network"} <= set(info["isolation"])
    assert set(info["packages"]["math"]) == {"numpy", "sympy", "mpmath"}
    assert set(info["packages"]["data"]) == {"numpy", "pandas", "scipy"}


def test_the_container_is_hardened(container: Target, compose: Compose) -> None:
    state = _inspected(compose)
    host = state["HostConfig"]
    assert state["Config"]["User"] == "10001:10001"
    assert (host["ReadonlyRootfs"], host["CapDrop"], host["Privileged"]) == (True, ["ALL"], False)
    assert host["Memory"] == host["MemorySwap"] == 4 << 30
    assert host["PidsLimit"] == 4096
    assert "no-new-privileges:true" in host["SecurityOpt"]
    assert any(option.startswith("seccomp=") and "SCMP_ACT_ERRNO" in option for option in host["SecurityOpt"])
    assert {binding["HostIp"] for bindings in host["PortBindings"].values() for binding in bindings} == {"127.0.0.1"}
    status = compose("exec", "-T", "sandbox", "cat", "/proc/1/status")
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert (int(fields["CapEff"], 16), int(fields["CapBnd"], 16)) == (0, 0)
    assert (fields["NoNewPrivs"], fields["Seccomp"]) == ("1", "2")
    assert set(fields["Uid"].split()) == {"10001"}


def _inspected(compose: Compose) -> dict[str, Any]:
    found: list[dict[str, Any]] = json.loads(run("docker", "inspect", compose.state()["ID"], env=compose.env))
    return found[0]


async def test_sandbox_container_has_the_same_hardening(container: Target, compose: Compose) -> None:
    by_compose = _inspected(compose)
    async with Sandbox.container(image=IMAGE, slots=2) as sandbox:
        assert (await sandbox.run(RunRequest(code="print(6 * 7)"))).stdout == "42\n"
        assert (await sandbox.info())["pool"]["slots"] == 2
        ours = _labelled(compose)
        assert len(ours) == 1
        ours_state = json.loads(run("docker", "inspect", ours[0], env=compose.env))[0]
        for name in ("ReadonlyRootfs", "CapDrop", "CapAdd", "Privileged", "Memory", "MemorySwap", "PidsLimit", "Tmpfs",
                     "MaskedPaths", "ReadonlyPaths", "UsernsMode", "PidMode", "IpcMode"):  # fmt: skip
            assert ours_state["HostConfig"][name] == by_compose["HostConfig"][name], name
        options = [_comparable(state["HostConfig"]["SecurityOpt"]) for state in (ours_state, by_compose)]
        assert options[0] == options[1]
        assert ours_state["Config"]["User"] == by_compose["Config"]["User"]
        async with aiohttp.ClientSession(sandbox.url) as http, http.get("/v1/info") as response:
            assert response.status == 401  # its token is its owner's
    assert _labelled(compose) == []


def _comparable(options: list[str]) -> list[object]:
    """Security options without the accidents of their spelling."""
    return sorted(
        (str(json.loads(text.partition("=")[2])) if text.startswith("seccomp=") else text.replace("=", ":"))
        for text in options
    )


def _labelled(compose: Compose) -> list[str]:
    return run("docker", "ps", "-aq", "--filter", "label=rollbox.sandbox.owner", env=compose.env).split()


_KILLED = f"""
import asyncio, os, signal
from rollbox.sandbox.client import Sandbox
from rollbox.sandbox.container import owner
async def main():
    async with Sandbox.container(image={IMAGE!r}) as sandbox:
        print("up", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""


async def test_a_killed_owner_takes_its_container_along(compose: Compose) -> None:
    done = subprocess.run([sys.executable, "-c", _KILLED], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("up\n", -9), done.stderr
    left = _labelled(compose)
    if left:
        run("docker", "wait", *left, env=compose.env)
        async with Sandbox.container(image=IMAGE):  # which removes what an owner that is gone has left
            pass
    assert _labelled(compose) == []


async def test_orphans_are_removed_at_the_next_start(compose: Compose) -> None:
    label = f"rollbox.sandbox.owner={owner().split()[0]} 999999999 1"
    run("docker", "create", "--label", label, IMAGE, env=compose.env)
    elsewhere = run("docker", "create", "--label", "rollbox.sandbox.owner=other 1 1", IMAGE, env=compose.env).strip()
    try:
        async with Sandbox.container(image=IMAGE):
            pass
        assert _labelled(compose) == [elsewhere[:12]]
    finally:
        run("docker", "rm", elsewhere, env=compose.env)


async def test_packages_by_argument_and_by_file(compose: Compose, tmp_path: Path) -> None:
    context = tmp_path / "context"
    files = run("git", "ls-files", "-z", cwd=REPOSITORY).split("\0")[:-1]
    for name in files:
        if (REPOSITORY / name).is_file():
            (context / name).parent.mkdir(parents=True, exist_ok=True)
            (context / name).write_bytes((REPOSITORY / name).read_bytes())
    (context / "sandbox/packages/requirements.txt").write_text("toolz\n")
    tag = "rollbox-sandbox:test-packages"
    build(compose.env, tag, "--build-arg", "EXTRA_PACKAGES=sortedcontainers", context=context)
    try:
        async with Sandbox.container(image=tag) as sandbox:
            result = await sandbox.run(RunRequest(code="import toolz, sortedcontainers; print('both')"))
        assert (result.status, result.stdout) == ("ok", "both\n"), result
    finally:
        run("docker", "rmi", tag, env=compose.env)


def test_the_image_alone_asks_for_a_token(compose: Compose) -> None:
    command = ["docker", "run", "--rm", IMAGE]
    done = subprocess.run(command, env={**os.environ, **compose.env}, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert "can be reached from other machines, and no token is set" in done.stderr


def test_down_leaves_nothing(docker_env: dict[str, str], compose: Compose) -> None:
    name = f"{PROJECT}-down"
    env = {**compose.env, "ROLLBOX_SANDBOX_PORT": "0"}
    run("docker", "compose", "-p", name, "up", "--detach", "--wait", "--no-build", "sandbox", env=env, cwd=REPOSITORY)
    run("docker", "compose", "-p", name, "down", "--volumes", env=env, cwd=REPOSITORY)
    for kind in ("ps -aq", "network ls -q", "volume ls -q"):
        label = f"label=com.docker.compose.project={name}"
        assert run("docker", *kind.split(), "--filter", label, env=docker_env) == "", kind


def test_the_base_is_an_argument() -> None:
    assert f"ARG BASE={BASE}" in (REPOSITORY / "sandbox/Dockerfile").read_text()


def test_the_profile_is_what_its_script_makes() -> None:
    committed = json.loads((REPOSITORY / "sandbox/seccomp.json").read_text())
    made = profile()
    allowed, refused = (set(rule["names"]) for rule in committed["syscalls"])
    # A newer libseccomp knows more names.
    assert allowed <= set(made["syscalls"][0]["names"]) or set(made["syscalls"][0]["names"]) <= allowed
    assert refused == set(made["syscalls"][1]["names"]) == set(policy.DENIED_SYSCALLS) - set(BUILDING)
    assert set(BUILDING) <= allowed
    assert {**committed, "syscalls": None} == {**made, "syscalls": None}
