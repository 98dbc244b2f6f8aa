"""Doors: the only way to other machines that a program can be given.

The jail's network has a loopback interface and nothing else. A door is a listening socket on it, at the address that a
host's name has inside; the server holds it, takes what connects there, and forwards it to that one host and port. So a
program needs no proxy settings, and can name nobody who is not on the list.
"""

from __future__ import annotations

import fcntl
import struct
from _socket import (
    AF_INET,
    SCM_RIGHTS,
    SO_REUSEADDR,
    SOCK_DGRAM,
    SOCK_STREAM,
    SOL_SOCKET,
    inet_aton,
    socket,
)

from .steps import perform

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_BACKLOG = 64
_SIOCSIFADDR = 0x8916
_LOOPBACK = "127."


def open_doors(job_fd: int, doors: Sequence[tuple[str, int]]) -> None:
    """Open the doors and hand them to the server, at the other end of the job's socket. They are not kept here.

    Raises:
        StepError: an address cannot be had.
    """
    perform((("network doors", lambda: _hand_over(job_fd, [_listener(*door) for door in doors])),))


def _listener(address: str, port: int) -> socket:
    if not address.startswith(_LOOPBACK):
        _add_address(address)
    listener = socket(AF_INET, SOCK_STREAM)
    listener.setsockopt(SOL_SOCKET, SO_REUSEADDR, 1)
    listener.bind((address, port))
    listener.listen(_BACKLOG)
    return listener


def _add_address(address: str) -> None:
    """Give the loopback interface one more address, under an alias that is named after it."""
    family = AF_INET.to_bytes(2, "little")
    alias = f"lo:{inet_aton(address).hex()}".encode().ljust(16, b"\0")
    handle = socket(AF_INET, SOCK_DGRAM)
    fcntl.ioctl(handle.fileno(), _SIOCSIFADDR, alias + family + bytes(2) + inet_aton(address) + bytes(16))
    handle.close()


def _hand_over(job_fd: int, listeners: Sequence[socket]) -> None:
    job = socket(fileno=job_fd)
    rights = b"".join(struct.pack("i", listener.fileno()) for listener in listeners)
    job.sendmsg([b"D"], [(SOL_SOCKET, SCM_RIGHTS, rights)])
    job.detach()
    for listener in listeners:
        listener.close()
