"""ProcessPool: every call starts a fresh launcher and a fresh interpreter."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import time
from types import TracebackType
from typing import Self

from ..schemas.errors import ErrorKind, SandboxError, ToolError
from ..schemas.run import RunRequest, RunResult
from ..serving.admission import Admission
from .capture import Capture
from .command import Command
from .failures import explained
from .interpreter import Interpreter
from .isolation import FULL_ISOLATION, Isolation
from .jail import policy
from .jail.bundle import bundle
from .jail.frames import Job
from .job import encoded, is_large, job_limits, program_content, program_name
from .launch import Launch, memory_file
from .pool import PoolInfo, check_python
from .verdict import judged

_SETUP_GRACE_S = 30.0


class ProcessPool:
    """A Pool of nothing kept ready. Costs one interpreter start for the launcher and one for the program."""

    def __init__(self, slots: int, queue: int, *, isolation: Isolation = FULL_ISOLATION) -> None:
        """
        Raises:
            ConfigError: libseccomp is missing.
        """
        self._admission = Admission(slots, queue)
        self._interpreter = Interpreter.current()
        self._seccomp = base64.b64encode(isolation.seccomp_filter()).decode("ascii")
        self._namespaces = isolation.namespaces(policy.ALL_NAMESPACES)
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

    def packages(self) -> dict[str, dict[str, str]]:
        return {}

    async def run(self, request: RunRequest, command: Command | None = None, code_object: bytes = b"") -> RunResult:
        if command is None:
            check_python(request)
        for field in ("echo_last_expression", "figures", "allow_hosts"):
            if getattr(request, field):
                raise ToolError(f"{field}: a server started with --pool process cannot do this", ErrorKind.ARGUMENTS)
        task = asyncio.ensure_future(self._admitted(request, command, code_object))
        self._runs.add(task)
        task.add_done_callback(self._runs.discard)
        try:
            return await task
        except asyncio.CancelledError:
            # The slot is free only when the program is gone, so wait for that before the caller goes on.
            task.cancel()
            await asyncio.wait({task})
            raise

    async def _admitted(self, request: RunRequest, command: Command | None, code_object: bytes) -> RunResult:
        async with self._admission.slot(request.client) as queue_ms:
            try:
                result = await self._run(request, command, code_object)
            except OSError as error:
                # Out of descriptors, processes or memory, before the launcher was there to report it.
                raise SandboxError(f"the call could not be started: {error.strerror or error}") from error
            result.queue_ms = queue_ms
            return result

    async def _run(self, request: RunRequest, command: Command | None, code_object: bytes) -> RunResult:
        asked_s = time.monotonic()
        limits, keep = job_limits(request), request.limits
        # Building the largest requests takes tenths of a second, which the event loop must not.
        if is_large(request, command):
            job_fd, stdin_fd = await self._inputs_in_thread(request, command, code_object)
        else:
            job_fd, stdin_fd = self._inputs(request, command, code_object)
        stdout, stderr = (
            Capture(keep.output_bytes, keep.output_kill_mb << 20, lambda: launch.end_run()) for _ in range(2)
        )
        launch = Launch(self._interpreter, self._bundle, job=job_fd, stdin=stdin_fd, stdout=stdout, stderr=stderr)
        async with launch:
            report = await launch.report(limits["wall_s"] + _SETUP_GRACE_S)
        if "outcome" not in report:
            raise explained(report.get("failure"))
        return await judged(request, limits, report["outcome"], stdout, stderr, asked_s=asked_s, command=command)

    def _job(self, request: RunRequest, command: Command | None, code_object: bytes) -> Job:
        program = program_name(request, command)
        path, files = f"{policy.WORK_DIR}/{program}", request.files
        if code_object:
            path, files = f"{path}c", {**files, f"{program}c": base64.b64encode(code_object).decode("ascii")}
        start = command.argv if command else (self._interpreter.executable, path)
        return Job(
            binds=list(self._interpreter.binds),
            namespaces=self._namespaces,
            command=[*start, *request.args],
            env={**policy.BASE_ENV, **(command.env(request.env) if command else request.env)},
            program=program,
            code=base64.b64encode(program_content(request, command)).decode("ascii"),
            executable=command is not None and command.content is not None,
            files=files,
            fetch_files=request.fetch_files,
            seccomp=self._seccomp,
            limits=job_limits(request),
        )

    def _inputs(self, request: RunRequest, command: Command | None, code_object: bytes) -> tuple[int, int]:
        """Descriptors of the job and of stdin."""
        job = json.dumps(self._job(request, command, code_object)).encode("ascii")
        stdin = None if request.stdin is None else encoded(request.stdin)
        stdin_fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC) if stdin is None else memory_file(stdin)
        try:
            return memory_file(job), stdin_fd
        except BaseException:
            os.close(stdin_fd)
            raise

    async def _inputs_in_thread(
        self, request: RunRequest, command: Command | None, code_object: bytes
    ) -> tuple[int, int]:
        making = asyncio.ensure_future(asyncio.to_thread(self._inputs, request, command, code_object))
        try:
            return await asyncio.shield(making)
        except asyncio.CancelledError:
            making.add_done_callback(_close_inputs)  # a thread cannot be cancelled: it still opens them
            raise


def _close_inputs(made: asyncio.Future[tuple[int, int]]) -> None:
    if not made.cancelled() and made.exception() is None:
        for fd in made.result():
            os.close(fd)
