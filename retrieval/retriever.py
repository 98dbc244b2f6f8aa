"""What every source of passages can do."""

from __future__ import annotations

from typing import Protocol

from .passages import Hit


class Retriever(Protocol):
    """Finds passages. Used from event loops; what blocks runs in threads."""

    async def search(self, queries: list[str], top_k: int, timeout_s: float) -> tuple[list[list[Hit]], int]:
        """The hits of each query, best first and `top_k` at most, and how many retries it took.

        Raises:
            OverloadedError: the source is full.
            InfraError: it failed, or had no answer within `timeout_s` seconds.
        """
        ...

    async def aclose(self) -> None:
        """Give back what the running event loop holds of it."""
        ...
