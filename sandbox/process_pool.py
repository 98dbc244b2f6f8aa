"""ProcessPool: every call starts a fresh launcher and a fresh interpreter."""

from __future__ import annotations

import asyncio
import base64
import errno
import json
import logging
import math
import os
import time
from pathlib import PurePosixPath
from types import TracebackType
from typing import Self

from ..schemas.errors import ErrorKind, SandboxError, ToolError
from ..schemas.run import RunRequest, RunResult
from .admission import Admission
from .capture import Capture
from .interpreter import Interpreter
from .jail import policy
from .jail.bundle import bundle
from .jail.frames import Failure, Job, JobLimits
from .jail.seccomp import compile_filter
from .launch import Launch, memory_file
from .pool import PoolInfo
from .verdict import judge

_logger = logging.getLogger(__name__)

LANGUAGES = ("python", "python3")
_LARGE_CHARS = 262_144
_SETUP_GRACE_S = 30.0

_NO_NAMESPACES = (
    "unprivileged user namespaces are not allowed here: on Ubuntu set kernel.apparmor_restrict_unprivileged_userns=0, "
    "in Docker use a seccomp profile that allows them and security_opt systempaths=unconfined"
)
_REMEDIES = {
    "leave root": "run the server as a normal user, or leave it CAP_SETUID and CAP_SETGID",
    "namespaces": _NO_NAMESPACES,
    "private mounts": _NO_NAMESPACES,
    "new root": _NO_NAMESPACES,
    "proc": "in a container add security_opt systempaths=unconfined, so that /proc is fully visible",
    "open read-only folders": "install the interpreter where the server's user can read it; Linux 5.12 or newer",
    "attach read-only folders": "Linux 5.12 or newer is needed",
    "seccomp": "a kernel with CONFIG_SECCOMP_FILTER is needed",
}


class ProcessPool:
    """A Pool of nothing kept ready. Costs one interpreter start for the launcher and one for the program."""

    def __init__(self, slots: int, queue: int) -> None:
        """
        Raises:
            ConfigError: libseccomp is missing.
        """
        self._admission = Admission(slots, queue)
        self._interpreter = Interpreter.current()
        self._seccomp = base64.b64encode(compile_filter()).decode("ascii")
        self._bundle = memory_file(bundle())
        self._runs: set[asyncio.Task[RunResult]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for run in self._runs:
            run.cancel()
        await asyncio.gather(*self._runs, return_exceptions=True)
        os.close(self._bundle)

    def info(self) -> PoolInfo:
        admission = self._admission
        return PoolInfo("process", admission.slots, admission.queue, admission.running, admission.waiting)

    async def run(self, request: RunRequest) -> RunResult:
        if request.language not in LANGUAGES:
            choices = " or ".join(LANGUAGES)
            raise ToolError(f"language: {request.language!r} is not available; use {choices}", ErrorKind.ARGUMENTS)
        task = asyncio.ensure_future(self._admitted(request))
        self._runs.add(task)
        task.add_done_callback(self._runs.discard)
        try:
            return await task
        except asyncio.CancelledError:
            # The slot is free only when the program is gone, so wait for that before the caller goes on.
            task.cancel()
            await asyncio.wait({task})
            raise

    async def _admitted(self, request: RunRequest) -> RunResult:
        async with self._admission.slot() as queue_ms:
            try:
                result = await self._run(request)
            except OSError as error:
                # Out of descriptors, processes or memory, before the launcher was there to report it.
                raise SandboxError(f"the call could not be started: {error.strerror or error}") from error
            result.queue_ms = queue_ms
            return result

    async def _run(self, request: RunRequest) -> RunResult:
        asked_s = time.monotonic()
        job = self._job(request)
        limits, keep = job["limits"], request.limits
        # Building the largest requests takes tenths of a second, which the event loop must not.
        small = len(request.code) + len(request.stdin or "") + sum(map(len, request.files.values())) < _LARGE_CHARS
        job_fd, stdin_fd = _inputs(job, request) if small else await _inputs_in_thread(job, request)
        stdout, stderr = (
            Capture(keep.output_bytes, keep.output_kill_mb << 20, lambda: launch.end_run()) for _ in range(2)
        )
        launch = Launch(self._interpreter, self._bundle, job=job_fd, stdin=stdin_fd, stdout=stdout, stderr=stderr)
        async with launch:
            report = await launch.report(limits["wall_s"] + _SETUP_GRACE_S)
        if "outcome" not in report:
            raise _explained(report.get("failure"))
        return judge(request, limits, report["outcome"], stdout, stderr, asked_s=asked_s)

    def _job(self, request: RunRequest) -> Job:
        program = _program_name(request)
        limits = request.limits
        return Job(
            binds=list(self._interpreter.binds),
            command=[self._interpreter.executable, f"{policy.WORK_DIR}/{program}", *request.args],
            env={**policy.BASE_ENV, **request.env},
            program=program,
            code=request.code,
            files=request.files,
            fetch_files=request.fetch_files,
            seccomp=self._seccomp,
            limits=JobLimits(
                wall_s=limits.wall_s,
                cpu_s=math.ceil(limits.wall_s) + 1 if limits.cpu_s is None else limits.cpu_s,
                memory_mb=limits.memory_mb,
                processes=limits.processes,
                open_files=limits.open_files,
                file_size_mb=limits.file_size_mb,
                work_dir_mb=limits.work_dir_mb,
            ),
        )


def _program_name(request: RunRequest) -> str:
    """`main.py`, with underscores before it until no request file or folder has the name."""
    taken = {PurePosixPath(name).parts[0] for name in request.files}
    name = policy.PROGRAM_NAME
    while name in taken:
        name = f"_{name}"
    return name


def _inputs(job: Job, request: RunRequest) -> tuple[int, int]:
    """Descriptors of the job and of stdin."""
    try:
        stdin = None if request.stdin is None else request.stdin.encode()
        request.code.encode()
    except UnicodeEncodeError as error:
        raise ToolError(f"code or stdin: not valid Unicode: {error.reason}", ErrorKind.ARGUMENTS) from error
    stdin_fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC) if stdin is None else memory_file(stdin)
    try:
        return memory_file(json.dumps(job).encode("ascii")), stdin_fd
    except BaseException:
        os.close(stdin_fd)
        raise


async def _inputs_in_thread(job: Job, request: RunRequest) -> tuple[int, int]:
    making = asyncio.ensure_future(asyncio.to_thread(_inputs, job, request))
    try:
        return await asyncio.shield(making)
    except asyncio.CancelledError:
        making.add_done_callback(_close_inputs)  # a thread cannot be cancelled: it still opens them
        raise


def _close_inputs(made: asyncio.Future[tuple[int, int]]) -> None:
    if not made.cancelled() and made.exception() is None:
        for fd in made.result():
            os.close(fd)


def _explained(failure: Failure | None) -> SandboxError | ToolError:
    if failure is None:
        return SandboxError("the jail's report is empty")
    # The full text names paths of the host: for the log, not for the client.
    reason = os.strerror(failure["errno"]) if failure["errno"] else failure["message"]
    if "field" in failure:
        too_big = failure["errno"] == errno.ENOSPC
        remedy = "; it must fit in limits.work_dir_mb" if too_big else ""
        return ToolError(f"{failure['field']}: cannot be written: {reason}{remedy}", ErrorKind.ARGUMENTS)
    _logger.error("jail set-up failed at step %r: %s", failure["step"], failure["message"])
    remedy = _REMEDIES.get(failure["step"], "")
    text = f"the jail failed at step {failure['step']!r}: {reason}"
    return SandboxError(f"{text}; {remedy}" if remedy else text)
