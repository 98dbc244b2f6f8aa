"""Self-check: before a server serves, a program in the jail reports what it sees, and each layer is verified."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..schemas.errors import ConfigError, SandboxError
from ..schemas.run import RunLimits, RunRequest, RunStatus
from .interpreter import Interpreter
from .isolation import FULL_ISOLATION, Isolation, way_without
from .jail import policy
from .pool import Pool

NAMESPACES = ("user", "pid", "mnt", "net", "ipc", "uts", "cgroup")

_PROBE = """
import json, os, resource, socket

def refused(action):
    try:
        action()
    except OSError:
        return True
    return False

with open("/proc/self/status") as file:
    status = dict(line.split(":", 1) for line in file)
print(json.dumps({
    "status": {name: status[name].strip() for name in ("Seccomp", "NoNewPrivs", "CapEff", "CapPrm", "CapBnd")},
    "namespaces": {name: os.readlink("/proc/self/ns/" + name) for name in NAMESPACES},
    "uid": os.getuid(),
    "read_only": all(refused(lambda: open(folder + "/rollbox-probe", "w")) for folder in ("", "/usr", "/etc")),
    "interfaces": [name for _, name in socket.if_nameindex()],
    "descriptors": sorted(os.listdir("/proc/self/fd")),
    "processes": resource.getrlimit(resource.RLIMIT_NPROC)[1],
    "memory": resource.getrlimit(resource.RLIMIT_DATA)[1],
    "private": all(set(os.listdir(folder)) == set(names) for folder, names in PRIVATE.items()),
}))
"""


@dataclass(frozen=True, slots=True)
class _Layer:
    name: str
    holds: bool
    remedy: str


async def check_isolation(pool: Pool, isolation: Isolation = FULL_ISOLATION) -> tuple[str, ...]:
    """The names of the isolation layers, each verified from inside.

    Raises:
        ConfigError: a layer is missing that `isolation` does not lower, or the jail cannot be built; the text names it
            and the remedy.
    """
    code = f"NAMESPACES = {NAMESPACES!r}\nPRIVATE = {private_folders()!r}\n{_PROBE}"
    request = RunRequest(code=code, limits=RunLimits(wall_s=60))
    try:
        result = await pool.run(request)
    except SandboxError as error:
        raise ConfigError(f"isolation: {error}") from error
    if result.status is not RunStatus.OK:
        raise ConfigError(f"isolation: the probe program ended with {result.status}: {result.stderr[-500:]}")
    layers = _layers(json.loads(result.stdout))
    for layer in layers:
        if not layer.holds and not isolation.lowers(layer.name):
            raise ConfigError(f"isolation: layer {layer.name!r} is missing; {layer.remedy}{way_without(layer.name)}")
    return tuple(layer.name for layer in layers if layer.holds)


def private_folders() -> dict[str, list[str]]:
    """What the private folders of a fresh jail hold: the program, and the way to an interpreter that lives there."""
    shown = {"/workspace": {policy.PROGRAM_NAME}, "/tmp": set[str]()}  # noqa: S108 - the jail's own
    for bind in Interpreter.current().binds:
        for folder, names in shown.items():
            if Path(bind).is_relative_to(folder):
                names.add(Path(bind).relative_to(folder).parts[0])
    return {folder: sorted(names) for folder, names in shown.items()}


def _layers(seen: dict[str, Any]) -> list[_Layer]:
    status, limits = seen["status"], RunLimits()
    no_capabilities = all(int(status[name], 16) == 0 for name in ("CapEff", "CapPrm", "CapBnd"))
    kernel = "a kernel with CONFIG_SECCOMP_FILTER and libseccomp2 are needed"
    namespaces = [
        _Layer(f"{name} namespace", seen["namespaces"][name] != os.readlink(f"/proc/self/ns/{name}"), "see the docs")
        for name in NAMESPACES
    ]
    return [
        *namespaces,
        _Layer("seccomp", status["Seccomp"] == "2", kernel),
        _Layer("no new privileges", status["NoNewPrivs"] == "1", kernel),
        _Layer("no capabilities", no_capabilities, "report this with your kernel's version"),
        _Layer("not root", seen["uid"] != 0, "report this with your kernel's version"),
        _Layer("read-only root", seen["read_only"], "Linux 5.12 or newer is needed (mount_setattr)"),
        _Layer("private folders", seen["private"], "tmpfs must be mountable in a user namespace"),
        _Layer("no network", seen["interfaces"] == ["lo"], "network namespaces must be enabled (CONFIG_NET_NS)"),
        # 0, 1, 2, and the one with which the probe lists them.
        _Layer("no descriptors", len(seen["descriptors"]) == 4, "report this with your kernel's version"),
        _Layer("process limit", 0 < seen["processes"] <= limits.processes + 2, "the limit must be settable"),
        _Layer("memory limit", 0 < seen["memory"] <= limits.memory_mb << 20, "the limit must be settable"),
    ]
