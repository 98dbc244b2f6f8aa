"""Serve: open the pool, verify the jail, serve HTTP, drain. Also the command line `python -m rollbox.sandbox.serve`."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import resource
import socket
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from functools import partial
from types import FunctionType

import uvicorn
import uvloop

from ..schemas.errors import ConfigError
from ..schemas.validation import validated
from ..serving.access import server_token
from ..serving.announced import run_until_ended
from ..serving.ending import Ending
from ..serving.listening import address_of, listening
from .isolation import Isolation
from .metrics import Metrics
from .network import NetworkPolicy
from .pool import Pool
from .process_pool import ProcessPool
from .self_check import check_isolation
from .server import create_app
from .sessions import Sessions
from .settings import OURS_ALONE, SandboxSettings
from .siblings import Siblings, socket_path
from .supervisor import supervise
from .users import Users
from .zygote_pool import ZygotePool

# More than half of a chunk of 128 KB, at 8 bytes a slot.
_ROOMY_FRAME_SLOTS = 9000
EXIT_CANNOT_START = 3
"""The exit code of a server that refused to start; a supervisor should not restart it."""


def serve(settings: SandboxSettings) -> None:
    """Serve until SIGTERM or SIGINT, then drain: running programs get `drain_s`, new requests are refused.

    Raises:
        ConfigError: the address cannot be bound or needs a token, or an isolation layer is missing.
    """
    if settings.workers > 1 and settings.listen_fd is None:
        supervise(settings)
        return
    _allow_many_descriptors()
    for fd in (settings.ready_fd, settings.lifeline_fd, settings.listen_fd):
        if fd is not None:
            os.set_inheritable(fd, False)  # whoever waits for their end must not wait for the zygotes too
    _with_stack_room(lambda: run_until_ended(partial(_serve, settings), uvloop.new_event_loop))


def _with_stack_room(function: Callable[[], None]) -> None:
    """Call `function` from a frame that is large enough to be in a chunk of memory of its own, with room after it.

    The interpreter keeps frames in chunks of 16 KB, maps one when a call passes the end of the last, and unmaps it when
    the call returns. An event loop that happens to sit at such an end does both dozens of times for each request.
    """

    def call() -> None:
        function()

    code = call.__code__.replace(co_stacksize=_ROOMY_FRAME_SLOTS)
    FunctionType(code, globals(), closure=call.__closure__)()


def _allow_many_descriptors() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


async def _serve(settings: SandboxSettings, ending: Ending) -> None:
    token = server_token(settings.host, settings.token_file, settings.insecure)
    isolation = Isolation.parse(settings.isolation)
    if settings.listen_fd is None:
        listener = listening(settings.host, settings.port)
    else:
        listener = socket.socket(fileno=settings.listen_fd)
    siblings = Siblings(settings.worker, settings.workers, settings.workers_dir, token)
    async with _pool(settings, isolation) as pool, siblings, AsyncExitStack() as around:
        layers = await check_isolation(pool, isolation)
        metrics, sessions = Metrics(pool), None
        if isinstance(pool, ZygotePool):
            sessions = await around.enter_async_context(Sessions(pool, settings, metrics))
        config = uvicorn.Config(
            create_app(pool, settings, layers, token, siblings, metrics, sessions),
            http="httptools",
            lifespan="off",
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=settings.drain_s,
        )
        server = _Server(config, settings, ending)
        async with AsyncExitStack() as users:
            if settings.users_socket is not None:
                url = f"http://127.0.0.1:{listener.getsockname()[1]}"
                await users.enter_async_context(Users(settings.users_socket, url, server.end_at_once))
            await server.serve(sockets=[listener])


def _pool(settings: SandboxSettings, isolation: Isolation) -> Pool:
    network = NetworkPolicy(settings.allow_hosts)
    if network.names and (settings.pool == "process" or "net" in isolation.lowered):
        raise ConfigError("allow_hosts: not with --pool process, and not without a network namespace (no-net)")
    if settings.pool == "process":
        return ProcessPool(settings.slots, settings.queue, isolation=isolation)
    preload = [name for name in settings.preload.split(",") if name]
    return ZygotePool(settings.slots, settings.queue, preload, network=network, isolation=isolation)


class _Server(uvicorn.Server):
    """A uvicorn server that says when and where it is ready, and ends with its parent."""

    def __init__(self, config: uvicorn.Config, settings: SandboxSettings, ending: Ending) -> None:
        super().__init__(config)
        self._ending = ending
        self._settings = settings

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ending.served = True
        if self._settings.workers_dir:
            await self._listen_for_siblings()
        if self._settings.lifeline_fd is not None:
            asyncio.get_running_loop().add_reader(self._settings.lifeline_fd, self._parent_gone)
        if self._settings.ready_fd is not None and sockets:
            os.write(self._settings.ready_fd, f"{sockets[0].getsockname()[1]}\n".encode())
            os.close(self._settings.ready_fd)
        elif sockets:
            print(f"sandbox on {address_of(self._settings.host, sockets[0])}", flush=True)  # noqa: T201

    async def _listen_for_siblings(self) -> None:
        config, path = self.config, socket_path(self._settings.workers_dir, self._settings.worker)
        with suppress(FileNotFoundError):
            os.unlink(path)  # of the worker before us
        kind: Callable[..., asyncio.Protocol] = config.http_protocol_class
        protocol = partial(kind, config=config, server_state=self.server_state, app_state=self.lifespan.state)
        self.servers.append(await asyncio.get_running_loop().create_unix_server(protocol, path))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        if self._settings.workers_dir:
            with suppress(OSError):
                os.unlink(socket_path(self._settings.workers_dir, self._settings.worker))
                os.rmdir(self._settings.workers_dir)  # the last one does it

    def _parent_gone(self) -> None:
        assert self._settings.lifeline_fd is not None
        asyncio.get_running_loop().remove_reader(self._settings.lifeline_fd)
        self.end_at_once()

    def end_at_once(self) -> None:
        self.should_exit = True
        self.force_exit = True  # nobody is left to read the answers


def main(arguments: list[str] | None = None) -> int:
    """The command line. Returns the exit code: 0 after draining, 3 when the server cannot start."""
    options = {name: value for name, value in vars(_parser().parse_args(arguments)).items() if value is not None}
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    try:
        settings = validated(SandboxSettings, options, "command line")
        if settings.users_socket is not None and os.fork():
            os._exit(0)  # a server that many share is the child of none of them
        serve(settings)
    except ConfigError as error:
        print(f"rollbox sandbox cannot start: {error}", file=sys.stderr)  # noqa: T201
        return EXIT_CANNOT_START
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m rollbox.sandbox.serve",
        description="Serve the Rollbox sandbox. `rollbox serve --help` says what the options do.",
    )
    for name, field in SandboxSettings.model_fields.items():
        option = f"--{name.replace('_', '-')}"
        hidden = argparse.SUPPRESS if name in OURS_ALONE else None
        if field.annotation is bool:
            parser.add_argument(option, dest=name, nargs="?", const="true", help=hidden)
            continue
        default = field.get_default(call_default_factory=True)
        shown = "none" if default in ("", None) else default
        parser.add_argument(option, dest=name, metavar="VALUE", help=hidden or f"default: {shown}")
    return parser


if __name__ == "__main__":
    sys.exit(main())
