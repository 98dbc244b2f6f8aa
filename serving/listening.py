"""The listening socket of a server: one, or one for each worker at the same address."""

from __future__ import annotations

import socket

from ..schemas.errors import ConfigError

_BACKLOG = 2048


def listening(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """
    Args:
        port: 0 takes a free one. shared: let others of ours listen at the same address.

    Raises:
        ConfigError: the address cannot be had.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG, reuse_port=shared)
    except OSError as error:
        raise ConfigError(
            f"cannot listen on host {host!r}, port {port}: {error.strerror or error}; "
            "choose another with --port (0 takes a free one)"
        ) from error


def address_of(host: str, listener: socket.socket) -> str:
    """Where a server that was told to listen on `host` is found, for people: its port may have been chosen for it."""
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{listener.getsockname()[1]}"
