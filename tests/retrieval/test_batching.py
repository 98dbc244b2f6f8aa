"""Who is asked with whom, in which order, and what happens to a batch when somebody leaves it."""

from __future__ import annotations

import asyncio

import pytest

from rollbox.retrieval.batching import BatchingRetriever
from rollbox.retrieval.cache import CachedRetriever
from rollbox.retrieval.passages import Hit
from rollbox.schemas.errors import InfraError


class Engine:
    """Answers each call when told to."""

    def __init__(self) -> None:
        self.calls: list[tuple[list[str], int]] = []
        self.go = asyncio.Semaphore(0)
        self.cancelled = 0
        self.error: Exception | None = None

    async def search(self, queries: list[str], top_k: int, timeout_s: float) -> tuple[list[list[Hit]], int]:
        self.calls.append((queries, top_k))
        try:
            await self.go.acquire()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.error is not None:
            raise self.error
        return [[Hit(query, "", query, 1.0)] for query in queries], 1

    async def aclose(self) -> None: ...

    def let(self, calls: int) -> None:
        for _ in range(calls):
            self.go.release()


def ids(found: tuple[list[list[Hit]], int]) -> list[str]:
    return [hits[0].id for hits in found[0]]


async def turns() -> None:
    """Let everything run that can."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_single_query_is_asked_at_once() -> None:
    engine = Engine()
    batches = BatchingRetriever(engine, batch=8, at_a_time=2)
    engine.let(1)
    assert ids(await batches.search(["a"], 3, 5)) == ["a"]
    assert engine.calls == [(["a"], 3)]
    assert await batches.search([], 3, 5) == ([], 0)


async def test_what_waits_is_spread_over_the_calls_that_are_free() -> None:
    engine = Engine()
    batches = BatchingRetriever(engine, batch=8, at_a_time=2)
    engine.let(9)
    found = await batches.search(list("abcdefghijkl"), 3, 5)
    assert ids(found) == list("abcdefghijkl")
    assert [len(queries) for queries, _ in engine.calls] == [6, 6]


async def test_a_large_request_does_not_hold_up_a_small_one() -> None:
    engine = Engine()
    batches = BatchingRetriever(engine, batch=2, at_a_time=1)
    large = asyncio.create_task(batches.search([f"l{i}" for i in range(100)], 3, 5))
    await turns()
    small = asyncio.create_task(batches.search(["s"], 3, 5))
    await turns()
    engine.let(2)
    assert ids(await small) == ["s"]
    assert not large.done()
    engine.let(100)
    assert ids(await large) == [f"l{i}" for i in range(100)]


async def test_other_depths_are_other_batches_and_none_starves() -> None:
    engine = Engine()
    batches = BatchingRetriever(engine, batch=10, at_a_time=1)
    tasks = [asyncio.create_task(batches.search([f"q{i}"], 1 + i % 3, 5)) for i in range(9)]
    engine.let(20)
    assert [ids(found) for found in await asyncio.gather(*tasks)] == [[f"q{i}"] for i in range(9)]
    assert {top_k: sorted(queries) for queries, top_k in engine.calls[1:]} == {
        2: ["q1", "q4", "q7"],
        3: ["q2", "q5", "q8"],
        1: ["q3", "q6"],
    }


async def test_who_leaves_takes_its_queries_along_but_not_those_of_others() -> None:
    engine = Engine()
    batches = BatchingRetriever(engine, batch=4, at_a_time=1)
    blocker = asyncio.create_task(batches.search(["b"], 3, 5))
    await turns()
    leaver = asyncio.create_task(batches.search(["x", "y"], 3, 5))
    stayer = asyncio.create_task(batches.search(["s"], 3, 5))
    await turns()
    leaver.cancel()
    engine.let(2)
    assert ids(await stayer) == ["s"]
    assert ids(await blocker) == ["b"]
    assert [queries for queries, _ in engine.calls] == [["b"], ["s"]]
    assert leaver.cancelled()


async def test_a_call_ends_when_all_that_it_is_for_have_left() -> None:
    engine = Engine()
    batches = BatchingRetriever(engine, batch=4, at_a_time=1)
    blocker = asyncio.create_task(batches.search(["b"], 3, 5))
    await turns()
    tasks = [asyncio.create_task(batches.search([name], 3, 5)) for name in "xy"]
    await turns()
    engine.let(1)
    await blocker
    await turns()
    assert engine.calls[1] == (["x", "y"], 3)
    tasks[0].cancel()
    await turns()
    assert engine.cancelled == 0
    tasks[1].cancel()
    await turns()
    assert engine.cancelled == 1
    engine.let(1)
    assert ids(await batches.search(["next"], 3, 5)) == ["next"]


async def test_a_failure_reaches_all_of_the_batch_and_no_one_else() -> None:
    engine = Engine()
    batches = BatchingRetriever(engine, batch=4, at_a_time=1)
    engine.error = InfraError("broken")
    engine.let(1)
    with pytest.raises(InfraError, match="broken"):
        await batches.search(list("abc"), 3, 5)
    engine.error = None
    engine.let(1)
    assert ids(await batches.search(["d"], 3, 5)) == ["d"]


async def test_the_time_in_the_queue_counts() -> None:
    engine = Engine()
    batches = BatchingRetriever(engine, batch=4, at_a_time=1)
    blocker = asyncio.create_task(batches.search(["b"], 3, 5))
    await turns()
    with pytest.raises(InfraError, match=r"no answer within 0\.05 s"):
        await batches.search(["late"], 3, 0.05)
    engine.let(1)
    await blocker
    await turns()
    assert [queries for queries, _ in engine.calls] == [["b"]]


async def test_closing_ends_what_runs() -> None:
    engine = Engine()
    batches = BatchingRetriever(engine, batch=4, at_a_time=1)
    task = asyncio.create_task(batches.search(["b"], 3, 5))
    await turns()
    await batches.aclose()
    assert engine.cancelled == 1
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_cached_call_ends_with_its_last_caller_and_can_be_asked_anew() -> None:
    engine = Engine()
    cache = CachedRetriever(engine, 100, 60.0)
    callers = [asyncio.create_task(cache.search(["a"], 3, 5)) for _ in range(2)]
    await turns()
    callers[0].cancel()
    await turns()
    assert (engine.cancelled, len(engine.calls)) == (0, 1)
    callers[1].cancel()
    # Before the call has noticed its end, somebody asks for the same.
    again = asyncio.create_task(cache.search(["a"], 3, 5))
    await turns()
    assert (engine.cancelled, len(engine.calls)) == (1, 2)
    engine.let(1)
    assert ids(await again) == ["a"]


async def test_who_joins_a_call_has_its_own_time() -> None:
    engine = Engine()
    cache = CachedRetriever(BatchingRetriever(engine, 8, 4), 100, 60.0)
    hasty = asyncio.create_task(cache.search(["a"], 3, 0.05))
    await turns()
    patient = asyncio.create_task(cache.search(["a", "b"], 3, 30))
    with pytest.raises(InfraError, match=r"no answer within 0\.05 s"):
        await hasty
    engine.let(10)
    assert ids(await patient) == ["a", "b"]


async def test_a_failure_that_is_none_of_time_is_shared() -> None:
    engine = Engine()
    engine.error = InfraError("broken")
    cache = CachedRetriever(engine, 100, 60.0)
    tasks = [asyncio.create_task(cache.search(["a"], 3, timeout_s)) for timeout_s in (10, 20)]
    await turns()
    engine.let(1)
    assert [str(error) for error in await asyncio.gather(*tasks, return_exceptions=True)] == ["broken"] * 2
    assert len(engine.calls) == 1


async def test_the_cache_is_bounded_by_its_hits_too() -> None:
    engine = Engine()
    cache = CachedRetriever(engine, 100, 60.0, most_hits=2)
    engine.let(10)
    for query in "abcba":
        await cache.search([query], 3, 5)
    assert [queries[0] for queries, _ in engine.calls] == ["a", "b", "c", "a"]
    assert (cache.found, cache.missed) == (1, 4)


async def test_what_found_nothing_takes_room_too() -> None:
    class Nothing:
        asked = 0

        async def search(self, queries: list[str], top_k: int, timeout_s: float) -> tuple[list[list[Hit]], int]:
            self.asked += len(queries)
            return [[] for _ in queries], 0

        async def aclose(self) -> None:
            pass

    engine = Nothing()
    cache = CachedRetriever(engine, 1000, 60.0, most_hits=5)
    for number in [*range(10), *range(5, 10), 0]:
        await cache.search([f"q{number}"], 1, 30)
    assert engine.asked == 11
    await cache.aclose()
