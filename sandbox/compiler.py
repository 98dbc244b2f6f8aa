"""Compiler: compiles a program in a jail of its own, once for all requests that have the same one."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..schemas.run import CompileResult, RunLimits, RunRequest, RunResult, RunStatus
from . import python_code
from .command import Command
from .jail import policy
from .job import encoded, is_large, program_name
from .languages import PYTHON, Compile
from .pool import Pool
from .shared_work import SharedWork
from .toolchains import Toolchain, names

_MEBIBYTE = 1 << 20
_MOST_BYTES = 64 * _MEBIBYTE


@dataclass(frozen=True, slots=True)
class Compiled:
    """`artifact` is None when compiling failed. `queue_ms`: what it waited for a slot."""

    result: CompileResult
    artifact: bytes | None
    queue_ms: float = 0.0


class Compiler:
    """Compiles by running the compiler on a pool. Artifacts are kept for ten minutes, in 64 MiB at most.

    They are found again by the whole of what they were made from, so that nobody gets another's.
    """

    def __init__(self, pool: Pool, max_wall_s: float, max_memory_mb: int) -> None:
        """The maxima are those of the server, which also bound a compiler."""
        self._pool = pool
        self._max_wall_s = max_wall_s
        self._max_memory_mb = max_memory_mb
        self._shared: SharedWork[Compiled] = SharedWork(
            size=lambda compiled: len(compiled.artifact or b"") + len(compiled.result.stderr),
            # A time or memory limit may be met in a better hour.
            keep=lambda compiled: compiled.result.status in (RunStatus.OK, RunStatus.ERROR),
            most_bytes=_MOST_BYTES,
        )

    async def compile(self, request: RunRequest, toolchain: Toolchain, how: Compile) -> Compiled:
        """
        Raises:
            ToolError: (kind `arguments`) the request cannot be served as it is.
            OverloadedError: the queue is full.
            SandboxError: the compiler could not be run.
        """
        key = await _key(request, toolchain.language.name)
        return await self._shared.join(key, b"", lambda: self._compile(request, toolchain, how))

    async def compile_python(self, request: RunRequest, driver: str = "") -> Compiled:
        """Compile a Python program to the content of a .pyc file, with a driver around it if one is given.

        That is done in a jail too. Nobody but the jails of the program's own runs ever reads what comes out.

        Raises: as `compile`.
        """
        key = await _key(request, PYTHON, driver)
        return await self._shared.join(key, b"", lambda: self._compile_python(request, driver))

    async def _compile_python(self, request: RunRequest, driver: str) -> Compiled:
        program = program_name(request)  # lies there under its own name, because errors show its lines
        limits = self._limits(request, Compile((), work_dir_mb=64))
        source = base64.b64encode(encoded(request.code)).decode("ascii")
        result = await self._pool.run(
            RunRequest(
                code=python_code.COMPILE,
                args=[f"{policy.WORK_DIR}/{program}", driver],
                files={program: source},
                fetch_files=[python_code.ARTIFACT],
                client=request.client,
                limits=limits,
            )
        )
        return _compiled(result, python_code.ARTIFACT)

    async def _compile(self, request: RunRequest, toolchain: Toolchain, how: Compile) -> Compiled:
        placeholders = names(toolchain.language, request.code, request.limits)
        argv = toolchain.command(how.command, placeholders)
        limits = self._limits(request, how)
        bare: dict[str, Any] = {"stdin": None, "args": [], "env": {}, "allow_hosts": []}
        compiling = request.model_copy(update={**bare, "fetch_files": [how.artifact], "limits": limits})
        result = await self._pool.run(compiling, Command(toolchain.language, argv, placeholders["source"]))
        return _compiled(result, how.artifact)

    def _limits(self, request: RunRequest, how: Compile) -> RunLimits:
        return RunLimits(
            wall_s=min(request.limits.compile_wall_s, self._max_wall_s),
            memory_mb=min(how.memory_mb, self._max_memory_mb),
            processes=how.processes,
            work_dir_mb=how.work_dir_mb,
            file_size_mb=how.work_dir_mb,
        )


def _compiled(result: RunResult, name: str) -> Compiled:
    content = result.files.get(name)
    artifact = base64.b64decode(content) if content is not None and result.status is RunStatus.OK else None
    return Compiled(_compile_result(result, produced=artifact is not None), artifact, result.queue_ms)


def _compile_result(result: RunResult, *, produced: bool) -> CompileResult:
    failed_silently = result.status is RunStatus.OK and not produced
    return CompileResult(
        status=RunStatus.ERROR if failed_silently else result.status,
        exit_code=result.exit_code,
        signal=result.signal,
        stdout=result.stdout,
        stderr=result.stderr + (result.hint or "the compiler wrote no program\n" if failed_silently else ""),
        run_ms=result.run_ms,
        cpu_ms=result.cpu_ms,
    )


async def _key(request: RunRequest, *parts: str) -> str:
    """
    Raises:
        ToolError: (kind `arguments`) text that is not Unicode.
    """
    parts = (*parts, request.code, *(part for item in sorted(request.files.items()) for part in item))
    return await asyncio.to_thread(_digest, parts) if is_large(request) else _digest(parts)


def _digest(parts: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        data = encoded(part)
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()
