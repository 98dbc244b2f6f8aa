"""One index per corpus and process, however many tools and event loops ask for it."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from pathlib import Path

from .bm25 import Bm25Index

SHIPPED_CORPUS = Path(__file__).parent / "corpus" / "facts.jsonl"
"""A small corpus of general knowledge, for trying things out."""

_lock = threading.Lock()
_indexes: dict[Path, Future[Bm25Index]] = {}


async def shared_index(corpus: Path) -> Bm25Index:
    """The index over `corpus`, built in a thread by the first caller; callers meanwhile wait without holding a thread.

    A build that fails is forgotten, so that the next call tries again.

    Raises:
        ConfigError: as `Bm25Index.from_jsonl`.
    """
    key = await asyncio.to_thread(corpus.resolve)
    with _lock:
        future = _indexes.get(key)
        first = future is None
        future = _indexes.setdefault(key, Future())
    if first:
        # Not awaited: a cancelled caller must not take the index away from those who wait with it.
        threading.Thread(target=_build, args=(key, future), name=f"index {key.name}", daemon=True).start()
    return await asyncio.shield(asyncio.wrap_future(future))


def _build(corpus: Path, future: Future[Bm25Index]) -> None:
    try:
        index = Bm25Index.from_jsonl(corpus)
    except BaseException as error:  # noqa: BLE001 - whatever it is, those who wait must hear of it
        with _lock:
            del _indexes[corpus]
        future.set_exception(error)
    else:
        future.set_result(index)
