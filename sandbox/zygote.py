"""The server's end of a zygote: starts it, has it make slots, learns of its end."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import socket
from asyncio.subprocess import Process
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ..schemas.errors import SandboxError
from .failures import explained
from .interpreter import Interpreter
from .isolation import Isolation
from .jail import messages, policy, spawner
from .jail.frames import ZygoteConfig
from .launch import memory_file
from .slot import Slot

_START_S = 120.0
_DEATH_GRACE_S = 5.0
# Huge pages make a fork cheap: far fewer page-table entries to copy. Only what comes from malloc can lie in them.
_ZYGOTE_ENV = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1", "PYTHONMALLOC": "malloc"}


@dataclass(frozen=True, slots=True)
class JailParts:
    """What every zygote is made from.

    Attributes:
        bundle: a descriptor that stays open as long as zygotes are started.
        seccomp: the compiled filter; empty for none. hosts: lines for `/etc/hosts`.
    """

    interpreter: Interpreter
    bundle: int
    seccomp: bytes
    session_seccomp: bytes
    isolation: Isolation
    hosts: str


class Zygote:
    """One zygote process, and the spawner that waits for it."""

    def __init__(self, parts: JailParts, tier: str, on_death: Callable[[Zygote], None]) -> None:
        self._parts = parts
        self._tier = tier
        self._on_death = on_death
        self._channel: socket.socket | None = None
        self._process: Process | None = None
        self._ready: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self.packages: dict[str, str] = {}
        """Imported packages and their versions."""
        self.data_bytes = 0
        """Private memory that each of its children begins with, as RLIMIT_DATA counts it."""

    async def start(self) -> None:
        """Start it and wait until it serves.

        Raises:
            SandboxError: it did not come up; the text names the step and the remedy.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        config = memory_file(json.dumps(self._config()).encode())
        self._channel = ours
        ours.setblocking(False)
        asyncio.get_running_loop().add_reader(ours.fileno(), self._readable)
        passed = (self._parts.bundle, config, theirs.fileno())
        try:
            self._process = await asyncio.create_subprocess_exec(
                *(self._parts.interpreter.executable, "-I", "-S", "-B", "-c", spawner.BOOT),
                *map(str, passed),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                pass_fds=passed,
                env={},
                cwd="/",
                start_new_session=True,  # Ctrl-C in the server's terminal is the server's to handle
            )
        except OSError as error:
            self._die()
            raise SandboxError(f"the zygote could not be started: {error.strerror or error}") from error
        finally:
            theirs.close()
            os.close(config)
        try:
            async with asyncio.timeout(_START_S):
                said = await self._ready
        except TimeoutError:
            raise SandboxError(f"the zygote was not ready after {_START_S:.0f} s") from None
        self.packages, self.data_bytes = said["packages"], said["data_bytes"]

    def _config(self) -> ZygoteConfig:
        return ZygoteConfig(
            binds=list(self._parts.interpreter.binds),
            executable=self._parts.interpreter.executable,
            env={**policy.BASE_ENV, **_ZYGOTE_ENV},
            hidden_env=list(_ZYGOTE_ENV),
            tier=self._tier,
            hosts=self._parts.hosts,
            namespaces=self._parts.isolation.namespaces(policy.ALL_NAMESPACES),
            slot_namespaces=self._parts.isolation.namespaces(policy.SLOT_NAMESPACES),
            seccomp=base64.b64encode(self._parts.seccomp).decode("ascii"),
            session_seccomp=base64.b64encode(self._parts.session_seccomp).decode("ascii"),
        )

    def _readable(self) -> None:
        assert self._channel is not None
        try:
            kind, value, _ = messages.receive(self._channel)
        except BlockingIOError:
            return
        except OSError:
            kind, value = b"", None
        if not self._ready.done():
            if kind == messages.READY:
                self._ready.set_result(value)
            else:
                lost = SandboxError("the zygote ended before it was ready; see the server's log")
                self._ready.set_exception(explained(value) if kind == messages.FAILED else lost)
        if not kind:
            self._die()

    def _die(self) -> None:
        """The channel is closed at the other end: the zygote is gone, and all its slots with it."""
        if self._channel is not None:
            asyncio.get_running_loop().remove_reader(self._channel.fileno())
            self._channel.close()
            self._channel = None
            self._on_death(self)

    def new_slot(self, on_ready: Callable[[Slot], None], on_lost: Callable[[Slot, Any], None]) -> Slot:
        """
        Raises:
            SandboxError: the zygote is gone.
        """
        return Slot(self.new_channel(), on_ready, on_lost)

    def new_channel(self) -> socket.socket:
        """Have a slot made; returns our end of its channel.

        Raises:
            SandboxError: the zygote is gone.
        """
        if self._channel is None:
            raise SandboxError("the zygote is gone")
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            messages.send(self._channel, messages.NEW_SLOT, None, (theirs.fileno(),))
        except OSError as error:
            ours.close()
            raise SandboxError(f"the zygote does not answer: {error.strerror}") from error
        finally:
            theirs.close()
        return ours

    def reap(self) -> None:
        """Let the zygote look for slots that have ended."""
        if self._channel is not None:
            with suppress(OSError):
                messages.send(self._channel, messages.REAP)

    async def stop(self) -> None:
        """End it and everything below it, and reap."""
        if self._channel is not None:
            asyncio.get_running_loop().remove_reader(self._channel.fileno())
            self._channel.close()
            self._channel = None
        process = self._process
        if process is None:
            return
        try:
            async with asyncio.timeout(_DEATH_GRACE_S):
                await process.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                process.kill()  # takes the zygote along, by its parent death signal
            await process.wait()
