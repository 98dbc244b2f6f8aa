"""ReplicatedRetriever: equal servers as one. Calls go to the least busy; sick servers are left out for a while."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic

from ...schemas.errors import ConfigError, InfraError, OverloadedError
from ...serving.least_busy import FIRST_REST_S, EqualServer, choose
from ..passages import Hit
from ..retriever import Retriever

_LONGEST_REST_S = 30.0
_ROUNDS = 3
_PAUSE_S = 0.2


@dataclass(slots=True, eq=False)
class _Replica(EqualServer):
    name: str
    retriever: Retriever


class ReplicatedRetriever:
    """Asks any of several servers that have the same passages.

    A call that fails goes to another server at once, also when the first is full (429). A server that failed rests for
    a second, or for as long as it asks, then twice as long each time, 30 s at most; after its rest one call tries it.

    Args:
        replicas: servers by address. They should not retry by themselves.

    Raises:
        ConfigError: there is none.
    """

    def __init__(self, replicas: Sequence[tuple[str, Retriever]]) -> None:
        if not replicas:
            raise ConfigError("replicas: no address is given")
        self._replicas = [_Replica(name, retriever) for name, retriever in replicas]

    async def search(self, queries: list[str], top_k: int, timeout_s: float) -> tuple[list[list[Hit]], int]:
        """Hits per query, and how many times another try was needed.

        Raises:
            OverloadedError: the last server asked is full, and so were or failed the others. InfraError: all failed.
        """
        deadline = monotonic() + timeout_s
        retries = 0
        while True:
            try:
                with self._chosen() as replica:
                    found, more = await replica.retriever.search(queries, top_k, self._share_s(replica, deadline))
                    return found, retries + more
            except InfraError as error:
                pause_s = self._pause_s(retries)
                if retries + 1 >= _ROUNDS * len(self._replicas) or monotonic() + pause_s >= deadline:
                    error.retries += retries
                    raise
            await asyncio.sleep(pause_s)
            retries += 1

    async def aclose(self) -> None:
        for replica in self._replicas:
            await replica.retriever.aclose()

    def resting(self) -> list[str]:
        """The addresses that are left out at the moment."""
        now = monotonic()
        return [replica.name for replica in self._replicas if replica.rests_until > now]

    @contextmanager
    def _chosen(self) -> Iterator[_Replica]:
        replica = choose(self._replicas, monotonic())
        replica.outstanding += 1
        try:
            yield replica
        except InfraError as error:
            replica.failures += 1
            rest_s = min(FIRST_REST_S * 2 ** (replica.failures - 1), _LONGEST_REST_S) * random.uniform(0.5, 1.0)
            asked_s = error.retry_after_s if isinstance(error, OverloadedError) else 0.0
            replica.rests_until = monotonic() + min(max(rest_s, asked_s), _LONGEST_REST_S)
            raise
        else:
            replica.failures, replica.rests_until = 0, 0.0
        finally:
            replica.outstanding -= 1

    def _well(self) -> list[_Replica]:
        return [replica for replica in self._replicas if not replica.failures]

    def _share_s(self, replica: _Replica, deadline: float) -> float:
        """Seconds for one try: half of what is left while another server could still answer, for one may hang."""
        left_s = deadline - monotonic()
        return left_s / 2 if any(other is not replica for other in self._well()) else left_s

    def _pause_s(self, retries: int) -> float:
        """None while another server is well; else longer each round, so that servers that restart are waited for."""
        if self._well():
            return 0.0
        return _PAUSE_S * float(2 ** (retries // len(self._replicas))) * random.uniform(0.5, 1.0)
