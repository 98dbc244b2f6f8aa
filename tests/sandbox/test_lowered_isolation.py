"""`--isolation`: layers are done without on purpose only, and exactly those that were named."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from typing import Any

import aiohttp
import pytest

from rollbox.sandbox.client import Sandbox
from rollbox.sandbox.isolation import Isolation, way_without
from rollbox.sandbox.self_check import NAMESPACES
from rollbox.schemas.errors import ConfigError
from rollbox.schemas.run import RunRequest

from .server_process import serving

LOOK = """
import json, os, socket
with open("/proc/self/status") as file:
    status = dict(line.split(":", 1) for line in file)
print(json.dumps({
    "seccomp": status["Seccomp"].strip(), "capabilities": status["CapEff"].strip(), "uid": os.getuid(),
    "namespaces": {name: os.readlink("/proc/self/ns/" + name) for name in NAMESPACES},
    "interfaces": [name for _, name in socket.if_nameindex()],
}))
"""


async def _seen_with(isolation: str, pool: str) -> tuple[dict[str, Any], dict[str, Any]]:
    with serving("--slots", "1", "--pool", pool, "--isolation", isolation) as server:
        async with Sandbox.connect(server.url) as sandbox:
            for _ in range(2):  # the second run is in a slot that was used
                result = await sandbox.run(RunRequest(code=f"NAMESPACES = {NAMESPACES!r}\n{LOOK}"))
        async with aiohttp.ClientSession() as http, http.get(f"{server.url}/v1/info") as response:
            info = await response.json()
    assert result.status == "ok", result
    return json.loads(result.stdout), info


@pytest.mark.parametrize("pool", ["zygote", "process"])
@pytest.mark.parametrize("lowered", ["seccomp", "net", "ipc", "uts", "cgroup"])
async def test_only_the_named_layer_is_missing(pool: str, lowered: str) -> None:
    seen, info = await _seen_with(f"no-{lowered}", pool)
    shared = [name for name in NAMESPACES if seen["namespaces"][name] == os.readlink(f"/proc/self/ns/{name}")]
    assert shared == [name for name in NAMESPACES if name == lowered]
    assert seen["seccomp"] == ("0" if lowered == "seccomp" else "2")
    assert (int(seen["capabilities"], 16), seen["uid"]) == (0, 1000)
    ours = sorted(name for _, name in socket.if_nameindex())
    assert sorted(seen["interfaces"]) == (ours if lowered == "net" else ["lo"])
    layer = lowered if lowered == "seccomp" else f"{lowered} namespace"
    assert layer not in info["isolation"]
    assert "user namespace" in info["isolation"]
    assert "no capabilities" in info["isolation"]


@pytest.mark.parametrize(
    "text", ["", "none", "no-user", "no-pid", "seccomp", "full,no-net", "no-seccomp,", "no-no-net"]
)
def test_what_cannot_be_lowered_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"isolation: .* is not one of full, no-seccomp, no-net"):
        Isolation.parse(text)


def test_full_is_the_default_and_lowers_nothing() -> None:
    assert Isolation.parse("full") == Isolation()
    assert not any(Isolation().lowers(f"{name} namespace") for name in NAMESPACES)


def test_a_server_without_a_network_of_its_own_opens_no_doors() -> None:
    for options in (("--isolation", "no-net"), ("--pool", "process")):
        command = [sys.executable, "-m", "rollbox.sandbox.serve", "--port", "0", "--allow-hosts", "a.org:80", *options]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert ended.returncode == 3
        assert "allow_hosts: not with --pool process" in ended.stderr


def test_a_missing_layer_says_how_to_do_without_it() -> None:
    assert "--isolation no-seccomp (programs may make any system call" in way_without("seccomp")
    assert "--isolation no-net (programs share the server's network" in way_without("net namespace")
    assert way_without("user namespace") == way_without("read-only root") == ""
