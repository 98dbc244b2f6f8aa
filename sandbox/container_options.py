"""The options of the sandbox's container, read from compose.yaml: the one place that has them."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from typing import Any

import yaml

from ..schemas.errors import ConfigError

OWNER_LABEL = "rollbox.sandbox.owner"
_VARIABLE = re.compile(r"\$\{\w+:-([^}]*)\}")
_MIB, _GIB = 1 << 20, 1 << 30
_KNOWN = frozenset(
    {
        *(
            "image",
            "build",
            "ports",
            "environment",
            "command",
            "user",
            "read_only",
            "cap_drop",
            "security_opt",
            "tmpfs",
        ),
        *("mem_limit", "memswap_limit", "pids_limit", "restart", "stop_grace_period"),
    }
)


def service() -> dict[str, Any]:
    """The service `sandbox` of compose.yaml, with the defaults of its variables.

    Raises:
        ConfigError: it has an option that is not carried over here, so that none is left out in silence.
    """
    text = (files("rollbox") / "compose.yaml").read_text(encoding="utf-8")
    found: dict[str, Any] = yaml.safe_load(_VARIABLE.sub(r"\1", text))["services"]["sandbox"]
    unknown = found.keys() - _KNOWN
    if unknown:
        raise ConfigError(f"compose.yaml: services.sandbox.{min(unknown)}: not known to Sandbox.container()")
    return found


def container_options(client: Any, image: str, command: list[str], environment: dict[str, str]) -> dict[str, Any]:
    """Arguments for `create_container` of docker's low-level client, with an open stdin that ends with its first user.

    Raises:
        ConfigError: compose.yaml cannot be read as it is meant.
    """
    found = service()
    host = client.create_host_config(
        port_bindings={8080: ("127.0.0.1", None)},
        read_only=found["read_only"],
        cap_drop=found["cap_drop"],
        security_opt=_security_options(found["security_opt"]),
        tmpfs=dict(mount.partition(":")[::2] for mount in found["tmpfs"]),
        mem_limit=_bytes(found["mem_limit"]),
        memswap_limit=_bytes(found["memswap_limit"]),
        pids_limit=found["pids_limit"],
        auto_remove=True,
    )
    if "systempaths=unconfined" in found["security_opt"]:
        # What the command line makes of this option; the engine itself does not know it.
        host |= {"MaskedPaths": [], "ReadonlyPaths": []}
    return {
        "image": image,
        "command": command,
        "user": found["user"],
        "environment": environment,
        "ports": [8080],
        "stdin_open": True,
        "host_config": host,
    }


def _security_options(options: list[str]) -> list[str]:
    """As the engine takes them: the seccomp profile itself in place of its path."""
    given = []
    for option in options:
        name, _, value = option.partition(":")
        if name == "seccomp":
            profile = (files("rollbox") / value).read_text(encoding="utf-8")
            given.append(f"seccomp={json.dumps(json.loads(profile))}")
        elif not option.startswith("systempaths="):
            given.append(option.replace(":", "=", 1))
    return given


def _bytes(text: str) -> int:
    number, unit = text[:-1], text[-1]
    if unit not in "mg" or not number.isdecimal():
        raise ConfigError(f"compose.yaml: {text!r} is no size such as 512m or 4g")
    return int(number) * (_MIB if unit == "m" else _GIB)
