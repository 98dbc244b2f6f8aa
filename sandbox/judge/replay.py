"""Replay: a judging that is asked for again with the same idempotency key is answered with the first one's lines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from ...schemas.judge import JudgeLine, JudgeRequest, Verdict
from ..idempotency import fingerprint
from ..shared_work import SharedWork

_MOST_BYTES = 64 << 20
_INFRA = f'"verdict":"{Verdict.INFRA}"'.encode()
_END = b""

Lines = Callable[[JudgeRequest], AsyncGenerator[JudgeLine, None]]


class Replay:
    """The lines of judgings by key, for ten minutes. Those of which a part failed through us are not kept."""

    def __init__(self) -> None:
        self._work: SharedWork[list[bytes]] = SharedWork(
            size=lambda lines: sum(map(len, lines)),
            keep=lambda lines: _INFRA not in lines[-1],
            most_bytes=_MOST_BYTES,
        )

    async def lines(self, request: JudgeRequest, judge: Lines) -> AsyncGenerator[bytes, None]:
        """The encoded lines: as they come, or those of the first judging with this key once it has ended.

        Raises: in the iterator, what `judge` raises.
            ToolError: (kind `arguments`) the key was used for another request.
        """
        key = request.idempotency_key
        if key is None:
            return _encoded(judge(request))
        # Requests may be large, with tests of many megabytes.
        return self._shared(key, await asyncio.to_thread(fingerprint, request), lambda: judge(request))

    async def _shared(
        self, key: str, mark: bytes, start: Callable[[], AsyncGenerator[JudgeLine, None]]
    ) -> AsyncGenerator[bytes, None]:
        feed: asyncio.Queue[bytes] = asyncio.Queue()

        async def judged() -> list[bytes]:
            lines = []
            async with aclosing(_encoded(start())) as encoded:
                async for line in encoded:
                    lines.append(line)
                    feed.put_nowait(line)
            return lines

        # Whoever comes second follows no feed, and gets all lines at the end.
        task = asyncio.create_task(self._work.join(key, mark, judged))
        task.add_done_callback(lambda _: feed.put_nowait(_END))
        sent = 0
        try:
            while line := await feed.get():
                yield line
                sent += 1
            for line in (await task)[sent:]:
                yield line
        finally:
            task.cancel()
            await asyncio.wait({task})


async def _encoded(lines: AsyncGenerator[JudgeLine, None]) -> AsyncGenerator[bytes, None]:
    async with aclosing(lines):
        async for line in lines:
            yield line.model_dump_json(exclude_none=True).encode() + b"\n"
