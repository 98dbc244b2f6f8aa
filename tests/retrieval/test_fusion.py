"""Several sources as one: ranks fused, shards merged, replicas that take each other's place."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from rollbox.retrieval.combined import replicas
from rollbox.retrieval.combined.fusion import FusedRetriever
from rollbox.retrieval.combined.replicas import ReplicatedRetriever
from rollbox.retrieval.combined.shards import ShardedRetriever
from rollbox.retrieval.passages import Hit
from rollbox.schemas.errors import ConfigError, InfraError, OverloadedError


class Source:
    """Answers every query with the same names, at falling scores; or fails, or waits for ever."""

    def __init__(
        self, names: str = "", top: float = 10.0, error: Exception | None = None, hangs: bool = False, retries: int = 0
    ) -> None:
        self.hits = [Hit(name, name, f"text of {name}", top - place) for place, name in enumerate(names)]
        self.error = error
        self.hangs = hangs
        self.retries = retries
        self.asked: list[tuple[list[str], int]] = []
        self.closed = self.cancelled = 0

    async def search(self, queries: list[str], top_k: int, timeout_s: float) -> tuple[list[list[Hit]], int]:
        self.asked.append((queries, top_k))
        if self.error is not None:
            raise self.error
        if self.hangs:
            try:
                async with asyncio.timeout(timeout_s):
                    await asyncio.Event().wait()
            except TimeoutError:
                raise InfraError("search unavailable: no answer") from None
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
        return [self.hits[:top_k] for _ in queries], self.retries

    async def aclose(self) -> None:
        self.closed += 1


def names(hits: Sequence[Hit]) -> str:
    return "".join(hit.id for hit in hits)


async def test_what_two_sources_find_comes_first() -> None:
    fused = FusedRetriever([Source("abcd"), Source("xcya")])
    [hits, again], _ = await fused.search(["q", "r"], 4, 5)
    assert names(hits) == "acxb"
    assert [round(hit.score, 4) for hit in hits[:2]] == [round(1 / 11 + 1 / 14, 4), round(1 / 13 + 1 / 12, 4)]
    assert again == hits


async def test_weights_and_the_constant_move_the_order() -> None:
    first, second = Source("acb"), Source("xyb")

    async def order(**settings: Any) -> str:
        return names((await FusedRetriever([first, second], **settings).search(["q"], 2, 5))[0][0])

    assert await order() == "ba"
    assert await order(k=0.01) == "ax"
    assert await order(weights=[0, 1]) == "xy"
    assert await order(weights=[9, 1]) == "ab"


async def test_few_hits_are_chosen_from_many() -> None:
    first, second = Source("abcdefghij"), Source("zyxwvutj")
    [hits], _ = await FusedRetriever([first, second]).search(["q"], 1, 5)
    assert names(hits) == "j"
    assert first.asked == [(["q"], 30)]


async def test_the_same_passage_twice_counts_once() -> None:
    twice = Source("aab")
    [hits], _ = await FusedRetriever([twice, Source("b")]).search(["q"], 5, 5)
    assert names(hits) == "ba"


async def test_no_hits_are_asked_for() -> None:
    assert (await FusedRetriever([Source("a")]).search(["q"], 0, 5))[0] == [[]]


async def test_a_source_that_fails_fails_the_call_and_ends_the_other() -> None:
    hanging = Source(hangs=True)
    with pytest.raises(InfraError, match="gone"):
        await FusedRetriever([hanging, Source(error=InfraError("gone"))]).search(["q"], 3, 60)
    assert hanging.cancelled == 1


@pytest.mark.parametrize("weights", [[1.0], [1.0, -1.0], [0.0, 0.0]])
def test_weights_that_mean_nothing(weights: list[float]) -> None:
    with pytest.raises(ConfigError, match="weights"):
        FusedRetriever([Source(), Source()], weights=weights)


async def test_retries_are_added_up_and_all_are_closed() -> None:
    sources = [Source("a", retries=2), Source("b", retries=1)]
    fused = FusedRetriever(sources)
    assert (await fused.search(["q"], 1, 5))[1] == 3
    await fused.aclose()
    assert [source.closed for source in sources] == [1, 1]


async def test_shards_are_merged_by_score() -> None:
    shards = ShardedRetriever([Source("abc", top=3), Source("xyz", top=10), Source("")])
    [hits], _ = await shards.search(["q"], 4, 5)
    assert names(hits) == "xyza"


async def test_shards_are_merged_by_rank() -> None:
    shards = ShardedRetriever([Source("abc", top=3), Source("xyz", top=1000)], merge="rrf")
    [hits], _ = await shards.search(["q"], 4, 5)
    assert sorted(names(hits)) == ["a", "b", "x", "y"]


async def test_a_lost_shard_is_no_smaller_answer() -> None:
    with pytest.raises(InfraError, match="gone"):
        await ShardedRetriever([Source("a"), Source(error=InfraError("gone"))]).search(["q"], 3, 5)


async def test_a_replica_takes_the_others_place_also_when_that_is_full() -> None:
    for error in (InfraError("gone"), OverloadedError("full", 60.0)):
        well = Source("a")
        group = ReplicatedRetriever([("http://sick", Source(error=error)), ("http://well", well)])
        for _ in range(10):
            [hits], _ = await group.search(["q"], 3, 5)
            assert names(hits) == "a"
        assert len(well.asked) == 10
        if isinstance(error, OverloadedError):
            assert group.resting() in ([], ["http://sick"])


async def test_a_replica_that_hangs_leaves_time_for_another() -> None:
    hanging = Source(hangs=True)
    group = ReplicatedRetriever([("http://hanging", hanging), ("http://well", Source("a"))])
    answers = []
    while not hanging.asked:  # among equals it is drawn
        answers.append(await group.search(["q"], 3, 4))
    assert {names(hits) for [hits], _ in answers} == {"a"}


async def test_a_sick_replica_rests_and_is_tried_again_by_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(replicas, "monotonic", lambda: now)
    sick, well = Source("b", error=InfraError("gone")), Source("a")
    group = ReplicatedRetriever([("http://sick", sick), ("http://well", well)])
    while not sick.asked:
        await group.search(["q"], 3, 60)
    for _ in range(20):
        await group.search(["q"], 3, 60)
    assert len(sick.asked) == 1
    assert group.resting() == ["http://sick"]
    now += 2
    sick.error = None
    await group.search(["q"], 3, 60)
    assert len(sick.asked) == 2
    assert group.resting() == []


async def test_all_replicas_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicas, "_PAUSE_S", 0.001)
    group = ReplicatedRetriever([(f"http://{i}", Source(error=InfraError("gone"))) for i in range(2)])
    with pytest.raises(InfraError, match="gone") as caught:
        await group.search(["q"], 3, 5)
    assert caught.value.retries == 5


async def test_nothing_to_ask() -> None:
    with pytest.raises(ConfigError):
        ReplicatedRetriever([])
    with pytest.raises(ConfigError):
        ShardedRetriever([])
    with pytest.raises(ConfigError):
        FusedRetriever([])
