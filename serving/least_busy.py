"""Which of several equal servers is asked: the least busy. One that rests is left out; one call tries a sick one."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

FIRST_REST_S = 1.0


@dataclass(slots=True, eq=False, kw_only=True)
class EqualServer:
    """What is known of one.

    Attributes:
        outstanding: calls of ours that it has now. failures: in a row. rests_until: `time.monotonic()` seconds.
    """

    outstanding: int = 0
    failures: int = 0
    rests_until: float = 0.0

    def is_well(self, now: float) -> bool:
        return not self.failures and self.rests_until <= now


S = TypeVar("S", bound=EqualServer)


def choose(servers: Sequence[S], now: float) -> S:
    """The server for the next call; with none well, the one that comes back first.

    One that failed and has had its rest is tried by this call alone: the others pass it over for `FIRST_REST_S` more.
    """
    rested = [server for server in servers if server.failures and server.rests_until <= now]
    if rested:
        server = min(rested, key=lambda server: server.rests_until)
        server.rests_until = now + FIRST_REST_S
        return server
    well = [server for server in servers if server.is_well(now)]
    if well:
        fewest = min(server.outstanding for server in well)
        return random.choice([server for server in well if server.outstanding == fewest])
    return min(servers, key=lambda server: server.rests_until)
