"""The supervisor of a server with several workers: starts them, restarts one that dies, drains all.

Every worker holds a pipe to us, as its lifeline: when we are killed, all of them end.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import sys
import tempfile
import time
from asyncio.subprocess import Process
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from typing import Any

from ..schemas.errors import ConfigError
from ..serving.access import server_token
from ..serving.listening import address_of, listening
from .capture import Collected, attach
from .isolation import Isolation
from .settings import SandboxSettings
from .users import Users

_logger = logging.getLogger(__name__)

_BOOT_S = 180.0
_DRAIN_GRACE_S = 15.0
_CANNOT_START = 3
_BACKOFF_S, _BACKOFF_MAX_S = 0.1, 5.0
_SETTLED_S = 10.0
_SHORT_LIVES = 5
"""A worker that dies as often within seconds of its start is not started again."""
_OURS = frozenset(
    {
        *("host", "slots", "queue", "max_per_client", "max_sessions", "max_sessions_per_client"),
        *("workers", "worker", "listen_fd", "workers_dir"),
    }
)
_NOT_THEIRS = frozenset({"port", "ready_fd", "lifeline_fd", "users_socket"})


def supervise(settings: SandboxSettings) -> None:
    """Serve with `settings.workers` processes until SIGTERM or SIGINT.

    Raises:
        ConfigError: the address cannot be bound, or a worker cannot serve.
    """
    if settings.slots < settings.workers:
        raise ConfigError(f"workers: {settings.workers} workers need as many slots; there are {settings.slots}")
    server_token(settings.host, settings.token_file, settings.insecure)  # as every worker will find, and say
    Isolation.parse(settings.isolation)
    for fd in (settings.ready_fd, settings.lifeline_fd):
        if fd is not None:
            os.set_inheritable(fd, False)
    asyncio.run(_Supervisor(settings).run())


class _Supervisor:
    def __init__(self, settings: SandboxSettings) -> None:
        self._settings = settings
        # One socket for each, on which connections wait for it while it is being restarted.
        first = listening(settings.host, settings.port, shared=True)
        self._port = first.getsockname()[1]
        others = [listening(settings.host, self._port, shared=True) for _ in range(settings.workers - 1)]
        self._listeners = [first, *others]
        self._folder = tempfile.mkdtemp(prefix="rollbox-workers-")
        self._processes: dict[int, Process] = {}
        self._lifelines: dict[int, int] = {}
        self._stopping = asyncio.Event()
        self._at_once = False

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopping.set)
        if self._settings.lifeline_fd is not None:
            loop.add_reader(self._settings.lifeline_fd, self._parent_gone)
        booted = [loop.create_future() for _ in self._listeners]
        keepers = [asyncio.create_task(self._keep(worker, each)) for worker, each in enumerate(booted)]
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            async with AsyncExitStack() as around:
                await self._first(asyncio.gather(*booted), keepers, stopping)
                if not self._stopping.is_set():
                    await self._announce(around)
                await self._first(stopping, keepers, stopping)
        finally:
            stopping.cancel()
            await self._end(keepers)

    async def _first(self, wanted: asyncio.Future[Any], keepers: list[asyncio.Task[None]], stopping: Any) -> None:
        """Wait for `wanted` or for the end, and raise what ended a keeper."""
        await asyncio.wait({wanted, stopping, *keepers}, return_when=asyncio.FIRST_COMPLETED)
        if not wanted.done():
            wanted.cancel()
        for keeper in keepers:
            if keeper.done():
                keeper.result()

    async def _announce(self, around: AsyncExitStack) -> None:
        if self._settings.users_socket is not None:
            url = f"http://127.0.0.1:{self._port}"
            await around.enter_async_context(Users(self._settings.users_socket, url, self._parent_gone))
        if self._settings.ready_fd is not None:
            os.write(self._settings.ready_fd, f"{self._port}\n".encode())
            os.close(self._settings.ready_fd)
        else:
            print(f"sandbox on {address_of(self._settings.host, self._listeners[0])}", flush=True)  # noqa: T201

    def _parent_gone(self) -> None:
        """Nobody is left to read the answers."""
        if self._settings.lifeline_fd is not None:
            asyncio.get_running_loop().remove_reader(self._settings.lifeline_fd)
        self._at_once = True
        self._stopping.set()

    async def _keep(self, worker: int, booted: asyncio.Future[None]) -> None:
        """Keep one worker running.

        Raises:
            ConfigError: it cannot serve.
        """
        short_lives = 0
        while not self._stopping.is_set():
            started_s = time.monotonic()
            is_up = await self._start(worker)
            if is_up and not booted.done():
                booted.set_result(None)
            code = await self._processes[worker].wait()
            self._let_go(worker)
            if self._stopping.is_set():
                return
            if not booted.done() or (not is_up and code == _CANNOT_START):
                raise ConfigError(f"worker {worker} ended with {_shown(code)} before it served; see above for why")
            short_lives = short_lives + 1 if time.monotonic() - started_s < _SETTLED_S else 0
            if short_lives >= _SHORT_LIVES:
                raise ConfigError(
                    f"worker {worker} ended {short_lives} times soon after its start, last with {_shown(code)}"
                )
            _logger.warning("worker %d ended with %s, and is started again", worker, _shown(code))
            pause_s = min(_BACKOFF_S * 2**short_lives, _BACKOFF_MAX_S)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._stopping.wait()

    async def _start(self, worker: int) -> bool:
        """Start a worker; whether it serves now."""
        ready = Collected()
        ready_read, ready_write = os.pipe()
        lifeline, self._lifelines[worker] = os.pipe()
        listener = self._listeners[worker].fileno()
        transport = await attach(ready, ready_read)
        try:
            self._processes[worker] = await asyncio.create_subprocess_exec(
                *_command(self._theirs(worker, ready_write, lifeline)),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=(ready_write, lifeline, listener),
                start_new_session=True,  # Ctrl-C is ours to handle
            )
        finally:
            os.close(lifeline)
            os.close(ready_write)
        try:
            async with asyncio.timeout(_BOOT_S):
                return bool(await ready.data())
        except TimeoutError:
            self._processes[worker].kill()
            return False
        finally:
            transport.close()

    def _theirs(self, worker: int, ready_fd: int, lifeline_fd: int) -> dict[str, Any]:
        settings, workers = self._settings, self._settings.workers
        given = settings.model_dump(exclude_defaults=True, exclude=set(_OURS | _NOT_THEIRS))
        return given | {
            "host": settings.host,
            "slots": _share(settings.slots, worker, workers),
            "queue": _share(settings.queue, worker, workers),
            "max_sessions": _share(settings.max_sessions, worker, workers),
            "max_sessions_per_client": -(-settings.max_sessions_per_client // workers),
            "max_per_client": -(-settings.max_per_client // workers),
            "workers": workers,
            "worker": worker,
            "listen_fd": self._listeners[worker].fileno(),
            "workers_dir": self._folder,
            "ready_fd": ready_fd,
            "lifeline_fd": lifeline_fd,
        }

    async def _end(self, keepers: list[asyncio.Task[None]]) -> None:
        """Drain the workers, or end them at once; reap all."""
        failed = any(keeper.done() and not keeper.cancelled() and keeper.exception() for keeper in keepers)
        self._stopping.set()
        if failed or self._at_once:
            for worker in list(self._lifelines):
                self._let_go(worker)
        self._signal(lambda process: process.terminate())
        patience_s = (0 if failed or self._at_once else self._settings.drain_s) + _DRAIN_GRACE_S
        running = [asyncio.create_task(process.wait()) for process in self._processes.values()]
        if running:
            await asyncio.wait(running, timeout=patience_s)
        self._signal(lambda process: process.kill())
        await asyncio.gather(*running)
        for keeper in keepers:
            keeper.cancel()
        await asyncio.gather(*keepers, return_exceptions=True)
        for worker in list(self._lifelines):
            self._let_go(worker)
        for listener in self._listeners:
            listener.close()
        # The last worker has done it, unless one was killed and left its socket.
        shutil.rmtree(self._folder, ignore_errors=True)

    def _let_go(self, worker: int) -> None:
        lifeline = self._lifelines.pop(worker, -1)
        if lifeline >= 0:
            os.close(lifeline)

    def _signal(self, send: Callable[[Process], None]) -> None:
        for process in self._processes.values():
            with suppress(ProcessLookupError):
                if process.returncode is None:
                    send(process)


def _command(settings: dict[str, Any]) -> list[str]:
    command = [sys.executable, "-m", "rollbox.sandbox.serve"]
    return command + [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]


def _share(total: int, worker: int, workers: int) -> int:
    return total // workers + (worker < total % workers)


def _shown(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {-code}"
