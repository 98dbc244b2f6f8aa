"""Isolation: the layers that a server's operator chose to do without."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from ..schemas.errors import ConfigError
from .jail import policy
from .jail.seccomp import compile_filter

_logger = logging.getLogger(__name__)

_FULL = "full"
# Name of the option -> the layers of the self-check that it gives up, and what that means.
_LAYERS: Mapping[str, tuple[str, ...]] = {
    "seccomp": ("seccomp",),
    "net": ("net namespace", "no network"),
    "ipc": ("ipc namespace",),
    "uts": ("uts namespace",),
    "cgroup": ("cgroup namespace",),
}
_MEANING = {
    "seccomp": "programs may make any system call that an unprivileged process may",
    "net": "programs share the server's network: they reach its port, the machine's other services and the internet",
    "ipc": "programs share System V memory and message queues with the server's machine",
    "uts": "programs see the machine's host name",
    "cgroup": "programs see the names of the machine's cgroups",
}


@dataclass(frozen=True, slots=True)
class Isolation:
    """Attributes: lowered: the layers to do without, of those that can be: seccomp, net, ipc, uts, cgroup."""

    lowered: frozenset[str] = frozenset()

    @classmethod
    def parse(cls, text: str) -> Self:
        """
        Args:
            text: `full`, or `no-LAYER` with commas between.

        Raises:
            ConfigError: there is no such layer, or it cannot be done without.
        """
        if text.strip() == _FULL:
            return cls()
        names = [part.strip() for part in text.split(",")]
        for name in names:
            if name.removeprefix("no-") not in _LAYERS or not name.startswith("no-"):
                choices = ", ".join(f"no-{layer}" for layer in _LAYERS)
                raise ConfigError(
                    f"isolation: {name!r} is not one of full, {choices}. The user, pid and mount namespaces and the "
                    "limits cannot be done without: the jail is made of them"
                )
        lowered = frozenset(name.removeprefix("no-") for name in names)
        for layer in sorted(lowered):
            _logger.warning("isolation is lowered, no-%s: %s", layer, _MEANING[layer])
        return cls(lowered)

    def namespaces(self, flags: int) -> int:
        """`flags` without those of the namespaces that are done without."""
        for name in policy.LOWERABLE_NAMESPACES:
            if name in self.lowered:
                flags &= ~policy.NAMESPACE_FLAGS[f"CLONE_NEW{name.upper()}"]
        return flags

    def seccomp_filter(self, *, for_sessions: bool = False) -> bytes:
        """The compiled filter; empty when it is done without.

        Raises:
            ConfigError: libseccomp cannot be loaded.
        """
        if "seccomp" in self.lowered:
            return b""
        try:
            return compile_filter(for_sessions=for_sessions)
        except ConfigError as error:
            raise ConfigError(f"{error}{way_without('seccomp')}") from error

    def lowers(self, layer: str) -> bool:
        """Whether a layer of the self-check is done without."""
        return any(layer in _LAYERS[name] for name in self.lowered)


FULL_ISOLATION = Isolation()


def way_without(layer: str) -> str:
    """What to add to a message about a missing layer of the self-check: how to do without, where that is possible."""
    for name, layers in _LAYERS.items():
        if layer in layers:
            return f"; or do without it, on purpose: --isolation no-{name} ({_MEANING[name]})"
    return ""
