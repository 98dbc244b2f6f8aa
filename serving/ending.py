"""What SIGTERM and SIGINT do to a server outside the time in which uvicorn listens to them."""

from __future__ import annotations

import asyncio
import signal
from types import FrameType
from typing import Self


class Ending:
    """The handler of a process's signals. Until the server serves, it ends the start; from then on they are uvicorn's,
    which drains, and raises them again when it has: the process must not seem to have been killed by them.

    Attributes:
        starting: the task that starts the server, and serves. served: the server has begun to serve.
    """

    def __init__(self) -> None:
        self.starting: asyncio.Task[None] | None = None
        self.served = False

    @classmethod
    def of_this_process(cls) -> Self:
        """One that handles the signals from now on."""
        ending = cls()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, ending)
        return ending

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.served:
            return
        if self.starting is None:
            raise SystemExit(0)
        # Not by an exception: it would be raised in whichever task runs at the moment.
        self.starting.get_loop().call_soon_threadsafe(self.starting.cancel)
