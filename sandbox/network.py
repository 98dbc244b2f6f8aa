"""The network policy: which hosts programs may be allowed to reach, and the forwarding to them.

Off unless both the server's operator and the request name a host. Connections end at the server, which looks the name
up and connects anew: a program never has a socket, a name server or a route outside its jail.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from collections.abc import Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from ..schemas.errors import ConfigError, ErrorKind, ToolError

_CONNECT_S = 10.0
_CONNECTIONS = 64
_READ_BYTES = 65_536
_NAME = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)(\.(?!-)[A-Za-z0-9_-]{1,63}(?<!-))*")
_MOST_NAMES = 250


@dataclass(frozen=True, slots=True)
class AllowedHost:
    """A host and port that programs may be allowed to reach. `address` is what the name means inside the jail."""

    name: str
    port: int
    address: str

    def __str__(self) -> str:
        return f"{self.name}:{self.port}"


class NetworkPolicy:
    """The hosts that a server allows."""

    def __init__(self, hosts: str) -> None:
        """
        Args:
            hosts: `name:port`, with commas between. A name or an IPv4 address; no patterns.

        Raises:
            ConfigError: one is malformed.
        """
        self._addresses: dict[str, str] = {}
        self._hosts: dict[str, AllowedHost] = {}
        for text in filter(None, (part.strip() for part in hosts.split(","))):
            host = self._parsed(text)
            self._hosts[str(host)] = host

    def _parsed(self, text: str) -> AllowedHost:
        name, _, port = text.rpartition(":")
        if not _NAME.fullmatch(name) or not port.isdecimal() or not 1 <= int(port) <= 65_535:
            raise ConfigError(f"allow_hosts: {text!r} is no host and port; it looks like pypi.org:443")
        name = name.lower()
        return AllowedHost(name, int(port), self._address(name))

    def _address(self, name: str) -> str:
        with suppress(ValueError):
            return str(ipaddress.IPv4Address(name))
        if name == "localhost":
            return "127.0.0.1"
        if name not in self._addresses:
            if len(self._addresses) >= _MOST_NAMES:
                raise ConfigError(f"allow_hosts: {_MOST_NAMES} names at most")
            self._addresses[name] = f"127.0.1.{len(self._addresses) + 1}"
        return self._addresses[name]

    @property
    def names(self) -> list[str]:
        """All that is allowed, as `name:port`."""
        return list(self._hosts)

    @property
    def etc_hosts(self) -> str:
        """Lines for `/etc/hosts` of the jail."""
        return "".join(f"{address} {name}\n" for name, address in self._addresses.items())

    def granted(self, names: Iterable[str]) -> list[AllowedHost]:
        """The hosts that a request names, each once.

        Raises:
            ToolError: (kind `arguments`) one is not allowed.
        """
        granted: dict[str, AllowedHost] = {}
        for name in names:
            host = self._hosts.get(name.lower())
            if host is None:
                allowed = f"it allows {', '.join(self._hosts)}" if self._hosts else "it allows no network"
                raise ToolError(f"allow_hosts: {name!r} is not allowed by this server; {allowed}", ErrorKind.ARGUMENTS)
            granted[name.lower()] = host
        return list(granted.values())


NO_NETWORK = NetworkPolicy("")


class Forwarding:
    """The open doors of one run, as an async context manager: leaving it closes every connection."""

    def __init__(self, hosts: Sequence[AllowedHost]) -> None:
        self._hosts = hosts
        self._tasks: set[asyncio.Task[None]] = set()
        self._room = asyncio.Semaphore(_CONNECTIONS)

    async def __aenter__(self) -> Forwarding:
        return self

    async def __aexit__(self, *_: object) -> None:
        while self._tasks:
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def serve(self, listeners: Sequence[socket.socket]) -> None:
        """Take over the listening sockets, in the order of the hosts."""
        for listener, host in zip(listeners, self._hosts, strict=True):
            listener.setblocking(False)
            self._begin(self._accept(listener, host))

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self, listener: socket.socket, host: AllowedHost) -> None:
        loop = asyncio.get_running_loop()
        with listener:
            while True:
                await self._room.acquire()
                connection, _ = await loop.sock_accept(listener)
                self._begin(self._forward(connection, host))

    async def _forward(self, connection: socket.socket, host: AllowedHost) -> None:
        try:
            await _joined(connection, host)
        finally:
            self._room.release()


async def _joined(connection: socket.socket, host: AllowedHost) -> None:
    """Forward both ways until both have ended. A host that cannot be reached is a connection that closes."""
    near_reader, near_writer = await asyncio.open_connection(sock=connection)
    try:
        async with asyncio.timeout(_CONNECT_S):
            far_reader, far_writer = await asyncio.open_connection(host.name, host.port)
    except OSError:  # also TimeoutError
        near_writer.transport.abort()
        return
    writers = (near_writer, far_writer)
    try:
        await asyncio.gather(_pump(near_reader, far_writer), _pump(far_reader, near_writer))
        for writer in writers:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
    finally:
        for writer in writers:
            writer.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(_READ_BYTES):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
