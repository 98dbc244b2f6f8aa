"""Capture one output stream: drain it always, keep its head and tail, count everything."""

from __future__ import annotations

import asyncio
import codecs
import os
from collections.abc import Callable

_CONTINUATION_MASK, _CONTINUATION = 0b1100_0000, 0b1000_0000
_MAX_CHARACTER_BYTES = 4
_PIECE_BYTES = 65_536
# What `backslashreplace` does, four times as fast: a program that writes nothing but invalid bytes costs us little.
_SHOWN_BYTES = {0xDC00 + byte: f"\\x{byte:02x}" for byte in range(128, 256)}


class Capture(asyncio.Protocol):
    """Reads a pipe to its end, however fast the program writes: a pipe that nobody drains would stall it.

    Attributes:
        total_bytes: written by the program so far.
    """

    def __init__(self, keep_bytes: int, kill_bytes: int, on_flood: Callable[[], None]) -> None:
        """Keep `keep_bytes`, half of them from the tail; call `on_flood` once, past `kill_bytes`."""
        self.total_bytes = 0
        self._tail_bytes = keep_bytes // 2
        self._head_bytes = keep_bytes - self._tail_bytes
        self._kill_bytes = kill_bytes
        self._on_flood: Callable[[], None] | None = on_flood
        self._head = bytearray()
        self._tail = bytearray()
        self._ended = asyncio.get_running_loop().create_future()

    @property
    def truncated(self) -> bool:
        return self.total_bytes > self._head_bytes + self._tail_bytes

    @property
    def kept_bytes(self) -> int:
        return len(self._head) + len(self._tail)

    def data_received(self, data: bytes) -> None:
        self.total_bytes += len(data)
        room = self._head_bytes - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data[-self._tail_bytes :]
        if len(self._tail) > 2 * self._tail_bytes:  # not at every write: each cut moves the rest
            del self._tail[: -self._tail_bytes]
        if self.total_bytes > self._kill_bytes and self._on_flood is not None:
            self._on_flood()
            self._on_flood = None

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._ended.done():
            self._ended.set_result(None)

    async def ended(self) -> None:
        """Wait until every process that could write to the stream is gone."""
        await asyncio.shield(self._ended)

    def text(self) -> str:
        """What was kept, as UTF-8; other bytes as `\\xNN`. A marker in the middle counts the bytes left out."""
        if not self.truncated:
            return _decoded(bytes(self._head + self._tail))
        head = _without_cut_end(bytes(self._head))
        tail = _without_cut_start(bytes(self._tail[-self._tail_bytes :]))
        left_out = self.total_bytes - len(head) - len(tail)
        return f"{_decoded(head)}\n[... {left_out} bytes left out ...]\n{_decoded(tail)}"


class Collected(asyncio.Protocol):
    """Reads a pipe of our own to its end and keeps all of it."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._ended = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        self._data += data

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._ended.done():
            self._ended.set_result(None)

    async def data(self) -> bytes:
        await asyncio.shield(self._ended)
        return bytes(self._data)


async def attach(protocol: asyncio.Protocol, read_fd: int) -> asyncio.ReadTransport:
    """Feed `protocol` from a pipe. The descriptor now belongs to the transport."""
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: protocol, os.fdopen(read_fd, "rb", buffering=0))
    return transport


def _decoded(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        pass
    # In pieces, since each holds the interpreter: a thread that decodes the largest outputs lets others in between.
    decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    pieces = [decoder.decode(data[start : start + _PIECE_BYTES]) for start in range(0, len(data), _PIECE_BYTES)]
    return "".join(piece.translate(_SHOWN_BYTES) for piece in (*pieces, decoder.decode(b"", final=True)))


def _without_cut_end(data: bytes) -> bytes:
    """Drop a last character of which some bytes are missing."""
    for back in range(1, min(_MAX_CHARACTER_BYTES, len(data)) + 1):
        byte = data[-back]
        if byte & _CONTINUATION_MASK != _CONTINUATION:
            return data[:-back] if _character_bytes(byte) > back else data
    return data


def _without_cut_start(data: bytes) -> bytes:
    """Drop the rest of a character whose first byte is missing."""
    start = 0
    while start < min(_MAX_CHARACTER_BYTES - 1, len(data)) and data[start] & _CONTINUATION_MASK == _CONTINUATION:
        start += 1
    return data[start:]


def _character_bytes(first: int) -> int:
    for length, mark in ((4, 0b1111_0000), (3, 0b1110_0000), (2, 0b1100_0000)):
        if first >= mark:
            return length
    return 1
