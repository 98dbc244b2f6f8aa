"""Tools with faults that a worker loads by name."""

from __future__ import annotations

from typing import Any

from ..tools.counting_tool import CountingTool


class UnreleasableTool(CountingTool):
    """Its `release` raises."""

    async def release(self, instance_id: str, **kwargs: Any) -> None:
        await super().release(instance_id, **kwargs)
        raise RuntimeError("cannot be released")


def double(number: int) -> int:
    """Double a number.

    Args:
        number: The number.
    """
    return 2 * number
