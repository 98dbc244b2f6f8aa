"""The listening socket of a server: one, or one for each worker at the same address."""

from __future__ import annotations

import socket

from ..schemas.errors import ConfigError
from .settings import SandboxSettings

_BACKLOG = 2048


def listening(settings: SandboxSettings, *, port: int | None = None, shared: bool = False) -> socket.socket:
    """
    Args:
        port: instead of that of the settings. shared: let others of ours listen at the same address.

    Raises:
        ConfigError: the address cannot be had.
    """
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    address = (settings.host, settings.port if port is None else port)
    try:
        return socket.create_server(address, family=family, backlog=_BACKLOG, reuse_port=shared)
    except OSError as error:
        raise ConfigError(
            f"cannot listen on host {settings.host!r}, port {address[1]}: {error.strerror or error}"
        ) from error
