"""Keeping the two ends of a stream, whatever the sizes of its pieces."""

from __future__ import annotations

import asyncio

import hypothesis.strategies as st
from hypothesis import given, settings

from rollbox.sandbox.capture import Capture


def _captured(pieces: list[bytes], keep: int) -> Capture:
    async def feed() -> Capture:
        capture = Capture(keep, 1 << 30, lambda: None)
        for piece in pieces:
            capture.data_received(piece)
        return capture

    return asyncio.run(feed())


@settings(deadline=None, max_examples=60)
@given(st.lists(st.text(max_size=40)), st.integers(16, 200))
def test_text_survives_or_is_cut_once_between_characters(texts: list[str], keep: int) -> None:
    whole = "".join(texts)
    capture = _captured([text.encode() for text in texts], keep)
    assert capture.total_bytes == len(whole.encode())
    if not capture.truncated:
        assert capture.text() == whole
        return
    head, _, rest = capture.text().partition("\n[... ")
    marker, _, tail = rest.partition(" bytes left out ...]\n")
    assert whole.startswith(head)
    assert whole.endswith(tail)
    assert int(marker) == capture.total_bytes - len(head.encode()) - len(tail.encode())
    assert keep - 8 < len(head.encode()) + len(tail.encode()) <= keep


@settings(deadline=None, max_examples=60)
@given(st.lists(st.binary(max_size=60)), st.integers(16, 100))
def test_any_bytes_can_be_shown(pieces: list[bytes], keep: int) -> None:
    whole = b"".join(pieces)
    capture = _captured(pieces, keep)
    if len(whole) <= keep:
        assert capture.text() == whole.decode("utf-8", "backslashreplace")
    capture.text().encode()


def test_flood_is_reported_once() -> None:
    async def feed() -> int:
        floods = 0

        def on_flood() -> None:
            nonlocal floods
            floods += 1

        capture = Capture(16, 100, on_flood)
        for _ in range(50):
            capture.data_received(bytes(10))
        return floods

    assert asyncio.run(feed()) == 1
