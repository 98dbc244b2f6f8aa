"""Messages between the server, its zygotes and their slots: one letter, then a marshalled value.

They cross a SOCK_SEQPACKET socket, so that each arrives whole with its descriptors. Both ends are the same interpreter,
for which `marshal` is the fastest codec; neither end is ever a program.
"""

from __future__ import annotations

import marshal
import os
from _socket import AF_UNIX, CMSG_SPACE, MSG_CMSG_CLOEXEC, SCM_RIGHTS, SOCK_SEQPACKET, SOL_SOCKET, socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

READY, ENDED, FAILED, FETCHING = b"R", b"E", b"F", b"G"
"""From a slot or zygote: a child waits for a job (its descriptors are attached); a run has ended; set-up failed; the
names of the files to fetch are awaited on the job's socket."""
NEW_SLOT, REAP = b"N", b"W"
"""To a zygote: make a slot at the attached descriptor; look for ended slots."""
END_RUN, WATCH = b"K", b"T"
"""To a slot, with the number of the run as its READY gave it: end what runs; watch the limits of what runs, which is
not among the many that end at once."""

SESSION = b"S"
"""To a slot: its child has been told to become a session, and the slot serves that from now on."""
CELL, END_CELL, FORK, CLOSE = b"C", b"X", b"O", b"Q"
"""To a slot that serves a session: run a cell (a CellOrder, the cell's descriptors are attached); end the cell that
runs; fork a member; end one. CELL and FORK go on to the head."""
BACK = b"V"
"""To a head: the cell that ran in the process it was forked from is undone."""
OPENED, CELL_ENDED, FORKED, LOST = b"P", b"D", b"Y", b"L"
"""From a slot that serves a session: it is open; a CellOutcome; the copies were made, or why not; a member is gone."""

MAX_BYTES = 65_536
_FD_BYTES = 4
_MAX_FDS = 8
_LENGTH_BYTES = 8
_READ_BYTES = 65_536


def send(channel: socket, kind: bytes, value: Any = None, fds: Sequence[int] = ()) -> None:
    """
    Raises:
        OSError: the other end is gone.
    """
    rights = b"".join(fd.to_bytes(_FD_BYTES, "little") for fd in fds)
    channel.sendmsg([kind + marshal.dumps(value)], [(SOL_SOCKET, SCM_RIGHTS, rights)] if fds else [])


def receive(channel: socket) -> tuple[bytes, Any, list[int]]:
    """The next message, and its descriptors, close-on-exec. The kind is empty when the other end is gone.

    Raises:
        BlockingIOError: none is there, on a channel that does not block.
    """
    data, ancillary, _, _ = channel.recvmsg(MAX_BYTES, CMSG_SPACE(_MAX_FDS * _FD_BYTES), MSG_CMSG_CLOEXEC)
    fds = [
        int.from_bytes(rights[start : start + _FD_BYTES], "little")
        for _, kind, rights in ancillary
        if kind == SCM_RIGHTS
        for start in range(0, len(rights), _FD_BYTES)
    ]
    return data[:1], (marshal.loads(data[1:]) if data else None), fds  # noqa: S302 - never from a program


def channel(fd: int) -> socket:
    """The channel at a descriptor, which it takes over."""
    return socket(AF_UNIX, SOCK_SEQPACKET, 0, fd)


def receive_block(fd: int) -> bytes:
    """The block of bytes, preceded by its length, that the server sends. It sends nothing more before it is asked to.

    Nobody at the other end: there is nothing left to do here.
    """
    data = os.read(fd, _READ_BYTES)
    missing = _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES], "little") - len(data)
    if not missing and data:
        return data[_LENGTH_BYTES:]
    parts = [data[_LENGTH_BYTES:]]
    while missing:
        part = os.read(fd, min(missing, 1 << 20))
        if not data or not part:
            os._exit(1)
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)
