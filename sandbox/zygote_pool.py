"""ZygotePool: every call runs in a child that was forked ahead from an interpreter with its imports done."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from types import TracebackType
from typing import Self

from ..schemas.errors import ConfigError, ErrorKind, SandboxError, ToolError
from ..schemas.run import RunRequest, RunResult
from ..schemas.session import SessionRequest
from ..serving.admission import Admission
from .capture import Capture
from .command import Command
from .failures import NotStartedError
from .family import Family
from .imports import tier_for, tier_of
from .interpreter import Interpreter
from .isolation import FULL_ISOLATION, Isolation
from .jail import tiers
from .jail.bundle import bundle
from .job import fetched_names, is_large, job_limits, session_job, slot_job
from .launch import memory_file
from .network import NO_NETWORK, Forwarding, NetworkPolicy
from .pool import PoolInfo, check_python, installed
from .tier import Tier
from .verdict import judged
from .zygote import JailParts

# A zygote's own memory counts against a program's limit: one with less room than this starts an interpreter of its own.
_ROOM_BYTES = 32 << 20
_SESSION_ROOM_BYTES = 4 << 20
_BACKSTOP_S = 60.0
_ATTEMPTS = 3


class ZygotePool:
    """A Pool of slots with ready children, by tier of imports. Zygotes start at the first call that needs them."""

    def __init__(
        self,
        slots: int,
        queue: int,
        preload: Sequence[str] = (),
        *,
        network: NetworkPolicy = NO_NETWORK,
        isolation: Isolation = FULL_ISOLATION,
    ) -> None:
        """
        Args:
            preload: tiers whose zygote is started on entering the context.
            network: the hosts that programs may be allowed to reach; none by default.
            isolation: the layers to do without; none by default.

        Raises:
            ConfigError: libseccomp is missing, or there is no such tier.
        """
        for name in preload:
            if name not in tiers.MODULES:
                raise ConfigError(f"preload: there is no tier {name!r}; there are {', '.join(tiers.MODULES)}")
        self._preload = preload
        self._admission = Admission(slots, queue)
        self._bundle = memory_file(bundle())
        self._network = network
        filters = isolation.seccomp_filter(), isolation.seccomp_filter(for_sessions=True)
        parts = JailParts(Interpreter.current(), self._bundle, *filters, isolation, network.etc_hosts)
        # One more than can run: a slot is made ready again while the next call is in another.
        self._tiers = {name: Tier(name, parts, slots + 1) for name in tiers.MODULES}

    async def __aenter__(self) -> Self:
        """
        Raises:
            ConfigError: a zygote that was to be started beforehand did not come up.
        """
        starting = [task for name in self._preload if (task := self._tiers[name].warm_up())]
        try:
            await asyncio.gather(*starting)
        except SandboxError as error:
            await self._close()
            raise ConfigError(f"preload: {error}") from error
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close()

    async def _close(self) -> None:
        await asyncio.gather(*(tier.close() for tier in self._tiers.values()))
        os.close(self._bundle)

    def info(self) -> PoolInfo:
        admission = self._admission
        return PoolInfo("zygote", admission.slots, admission.queue, admission.running, admission.waiting)

    def packages(self) -> dict[str, dict[str, str]]:
        return {name: installed(tiers.MODULES[name]) for name in self._tiers}

    @property
    def admission(self) -> Admission:
        """What runs and cells wait for."""
        return self._admission

    async def open_session(self, request: SessionRequest) -> tuple[str, Family]:
        """A slot with a session that has no cells yet, and the name of its tier. It takes no place of the admission.

        Raises:
            ToolError: (kind `arguments`) the request cannot be served as it is; the text names the field.
            SandboxError: the session could not be opened.
        """
        tier = self._tiers[tier_for(request.packages)]
        job = await asyncio.to_thread(session_job, request) if is_large(request) else session_job(request)
        family = await tier.family()
        await family.open(job)
        held_bytes = 0 if tier.zygote is None else tier.zygote.data_bytes
        if held_bytes + _SESSION_ROOM_BYTES > request.limits.memory_mb << 20:
            family.close()
            least_mb = (held_bytes + _SESSION_ROOM_BYTES >> 20) + 1
            text = f"limits.memory_mb: a session of the tier {tier.name!r} needs {least_mb} at least"
            raise ToolError(text, ErrorKind.ARGUMENTS)
        return tier.name, family

    async def run(self, request: RunRequest, command: Command | None = None, code_object: bytes = b"") -> RunResult:
        if command is None:
            check_python(request)
        async with self._admission.slot(request.client) as queue_ms:
            try:
                # Whatever is wrong with us, a call comes back.
                async with asyncio.timeout(request.limits.wall_s + _BACKSTOP_S):
                    result = await self._run_or_again(request, command, code_object)
            except TimeoutError:
                raise SandboxError(f"the run was not over {_BACKSTOP_S:.0f} s after its time limit") from None
            except OSError as error:
                # Out of descriptors, processes or memory.
                raise SandboxError(f"the call could not be started: {error.strerror or error}") from error
        result.queue_ms = queue_ms
        return result

    async def _run_or_again(self, request: RunRequest, command: Command | None, code_object: bytes) -> RunResult:
        for _ in range(_ATTEMPTS - 1):
            try:
                return await self._run(request, command, code_object)
            except NotStartedError:
                continue
        return await self._run(request, command, code_object)

    async def _run(self, request: RunRequest, command: Command | None, code_object: bytes) -> RunResult:
        asked_s = time.monotonic()
        limits = job_limits(request)
        tier, fresh = (self._tiers[tiers.BARE], False) if command else self._tier(request)
        hosts = self._network.granted(request.allow_hosts) if request.allow_hosts else []
        doors = [(host.address, host.port) for host in hosts]
        build = partial(
            slot_job, request, limits, command, fresh_interpreter=fresh, code_object=code_object, doors=doors
        )
        job = await asyncio.to_thread(build) if is_large(request, command) else build()
        slot = await tier.acquire()
        keep = request.limits
        stdout = Capture(keep.output_bytes, keep.output_kill_mb << 20, slot.end_run)
        stderr = Capture(keep.output_bytes, keep.output_kill_mb << 20, slot.end_run)
        async with Forwarding(hosts) if hosts else nullcontext() as forwarding:
            outcome = await slot.run(
                job,
                fetch_files=fetched_names(request),
                stdout=stdout,
                stderr=stderr,
                wall_s=limits["wall_s"],
                on_doors=None if forwarding is None else forwarding.serve,
            )
        return await judged(request, limits, outcome, stdout, stderr, asked_s=asked_s, command=command)

    def _tier(self, request: RunRequest) -> tuple[Tier, bool]:
        """The tier for a request, and whether its memory limit leaves no room for what a zygote holds."""
        bare = self._tiers[tiers.BARE]
        memory_bytes = request.limits.memory_mb << 20
        tier = self._tiers[tier_of(request.code)]
        if tier.zygote is None or tier.zygote.data_bytes + _ROOM_BYTES <= memory_bytes:
            return tier, False
        return bare, bare.zygote is not None and bare.zygote.data_bytes + _ROOM_BYTES > memory_bytes
