"""ClientCap: how much one client may have in the server at a time, so that no one can take it all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from ..schemas.errors import OverloadedError

_RETRY_AFTER_S = 1.0


class ClientCap:
    """Counts what is going on by `client`. Requests that name none are one client together."""

    def __init__(self, most: int, noun: str = "runs") -> None:
        """`most` of a client wait or run at a time; 0 is no cap. `noun`: what they are called in an error's text."""
        self._most = most
        self._noun = noun
        self._held: Counter[str] = Counter()

    @contextmanager
    def hold(self, client: str) -> Iterator[None]:
        """Count one of `client` while the context lasts.

        Raises:
            OverloadedError: it has as many as it may.
        """
        if not self._most:
            yield
            return
        if self._held[client] >= self._most:
            who = f"client {client!r}" if client else "requests that name no client"
            text = f"client: {who} may have {self._most} {self._noun} at a time on this server (max_per_client)"
            raise OverloadedError(text, retry_after_s=_RETRY_AFTER_S)
        self._held[client] += 1
        try:
            yield
        finally:
            self._held[client] -= 1
            if not self._held[client]:
                del self._held[client]
