"""Which of several equal servers gets a request: least outstanding, sticky by trajectory, the sick left out."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from ...schemas.errors import ConfigError

_EJECTED_S, _EJECTED_MAX_S = 1.0, 30.0
_REMEMBERED = 65_536
_SILENT_S = 30.0


@dataclass(slots=True, eq=False)
class Replica:
    """One server. `faults` counts those in a row; until `ejected_until` (monotonic seconds) it is left out.

    Attributes:
        heard_at: when it last answered anything, monotonic seconds. hangs: it did not when it was asked.
    """

    url: str
    outstanding: int = 0
    faults: int = 0
    ejected_until: float = 0.0
    heard_at: float = 0.0
    hangs: bool = False
    _requests: set[asyncio.Timeout] = field(default_factory=set)

    def failed(self) -> None:
        now = time.monotonic()
        if self.ejected_until > now:
            return  # all that were in flight fail at once, and are one fault
        self.faults += 1
        self.ejected_until = now + min(_EJECTED_MAX_S, _EJECTED_S * 2.0 ** min(self.faults - 1, 16))

    def succeeded(self) -> None:
        self.faults, self.ejected_until = 0, 0.0
        self.heard()

    def heard(self) -> None:
        """It answered, if only that it is full."""
        self.heard_at = time.monotonic()
        if self.hangs:
            self.hangs, self.ejected_until = False, 0.0

    def hung(self, rest_s: float) -> None:
        """Leave it out for a while, and give up the requests that it has."""
        self.hangs = True
        self.ejected_until = max(self.ejected_until, time.monotonic() + rest_s)
        for request in self._requests:
            if not request.expired():
                request.reschedule(asyncio.get_running_loop().time())

    @asynccontextmanager
    async def request(self) -> AsyncIterator[None]:
        """Around a request.

        Raises:
            TimeoutError: it was given up, because the server hangs.
        """
        async with asyncio.timeout(None) as given_up:
            self._requests.add(given_up)
            try:
                yield
            finally:
                self._requests.discard(given_up)


class Replicas:
    """Servers of one model.

    A trajectory stays with the server that had its first turn, which holds the prefix in its cache, as long as that one
    is well. A sick server is left out for a second, and twice as long after each further fault, 30 s at most. One that
    hangs is left out until it answers again, see `watch`.

    Raises:
        ConfigError: no address, or one that is none.
    """

    def __init__(self, urls: Sequence[str]) -> None:
        self.all = [Replica(url) for url in dict.fromkeys(map(check_url, urls))]
        if not self.all:
            raise ConfigError("model: no server address is given")
        # Nobody says when a trajectory is over, so the longest unused ones are forgotten.
        self._chosen: OrderedDict[str, Replica] = OrderedDict()

    @contextmanager
    def lease(self, key: str) -> Iterator[Replica]:
        """The server for a request of trajectory `key`; the request counts as outstanding inside the context."""
        replica = self._choose(key)
        replica.outstanding += 1
        started = time.monotonic()
        try:
            yield replica
        except BaseException:
            # Such as a deadline. What is stuck behind a front end that answers would else get each trajectory again.
            if replica.heard_at < started < time.monotonic() - _SILENT_S:
                replica.failed()
            raise
        finally:
            replica.outstanding -= 1

    def any_well(self, but: Replica | None = None) -> bool:
        """Whether some server, other than `but`, is not ejected."""
        now = time.monotonic()
        return any(replica.ejected_until <= now for replica in self.all if replica is not but)

    def _choose(self, key: str) -> Replica:
        now = time.monotonic()
        replica = self._chosen.get(key)
        if replica is None or replica.ejected_until > now:
            well = [replica for replica in self.all if replica.ejected_until <= now]
            # With none well, the one that comes back first is tried.
            replica = min(well, key=lambda r: r.outstanding) if well else min(self.all, key=lambda r: r.ejected_until)
        self._chosen[key] = replica
        self._chosen.move_to_end(key)
        if len(self._chosen) > _REMEMBERED:
            self._chosen.popitem(last=False)
        return replica


def check_url(url: str) -> str:
    """The base address, without its trailing slash and `/v1`.

    Raises:
        ConfigError: it is not an HTTP address, such as a placeholder that was never filled in.
    """
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid:
        raise ConfigError(f"model: {url!r} is not an address such as http://127.0.0.1:8000")
    return url.rstrip("/").removesuffix("/v1")
