"""What a run request becomes before it crosses into a jail."""

from __future__ import annotations

import binascii
import marshal
import math
from pathlib import PurePosixPath

from ..schemas.errors import ErrorKind, ToolError
from ..schemas.run import RunLimits, RunRequest
from ..schemas.session import CellRequest, SessionRequest
from .command import Command
from .jail import policy
from .jail.frames import JobLimits, SlotJob

LARGE_CHARS = 262_144
"""Building larger requests takes tenths of a second, which the event loop must not."""
_LENGTH_BYTES = 8
# Read by the interpreter, its allocator or a library only when they start.
_START_UP_VARIABLES = ("PYTHON", "LD_", "GLIBC_", "MALLOC_", "OPENBLAS_", "OMP_", "MKL_")


def is_large(request: RunRequest | SessionRequest | CellRequest, command: Command | None = None) -> bool:
    size = len(command.content or b"") if command else 0
    if not isinstance(request, CellRequest) and request.files:
        size += sum(map(len, request.files.values()))
    if not isinstance(request, SessionRequest):
        size += len(request.code) + len(request.stdin or "")
    return size >= LARGE_CHARS


def cpu_s(limits: RunLimits, wall_s: float) -> float:
    """CPU seconds for what may take `wall_s` by the clock."""
    return math.ceil(wall_s) + 1 if limits.cpu_s is None else limits.cpu_s


def job_limits(request: RunRequest | SessionRequest) -> JobLimits:
    limits = request.limits
    return JobLimits(
        wall_s=limits.wall_s,
        cpu_s=cpu_s(limits, limits.wall_s),
        memory_mb=limits.memory_mb,
        processes=limits.processes,
        open_files=limits.open_files,
        file_size_mb=limits.file_size_mb,
        work_dir_mb=limits.work_dir_mb,
    )


def program_name(request: RunRequest, command: Command | None = None) -> str:
    """`main.py`, with underscores before it until no request file or folder has the name.

    Raises:
        ToolError: (kind `arguments`) a request file is in the way of a program whose name cannot be another.
    """
    if command is not None:
        if request.files and any(PurePosixPath(each).parts[0] == command.file for each in request.files):
            raise ToolError(f"files.{command.file}: the program itself has this name", ErrorKind.ARGUMENTS)
        return command.file
    name = policy.PROGRAM_NAME
    if request.files:
        taken = {PurePosixPath(each).parts[0] for each in request.files}
        while name in taken:
            name = f"_{name}"
    return name


def fetched_names(request: RunRequest) -> list[str]:
    """Work-dir names of all that is to come back: asked-for files, and what else is asked for."""
    names = list(request.fetch_files)
    if request.echo_last_expression:
        names.append(policy.VALUE_FILE)
    if request.figures:
        names += policy.FIGURE_FILES
    return names


def encoded(text: str) -> bytes:
    """
    Raises:
        ToolError: (kind `arguments`) it holds lone surrogates.
    """
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ToolError(f"code or stdin: not valid Unicode: {error.reason}", ErrorKind.ARGUMENTS) from error


def program_content(request: RunRequest, command: Command | None) -> bytes:
    """
    Raises:
        ToolError: (kind `arguments`) text that is not Unicode.
    """
    if command is not None and command.content is not None:
        return command.content
    return encoded(request.code)


def slot_job(
    request: RunRequest,
    limits: JobLimits,
    command: Command | None,
    *,
    fresh_interpreter: bool,
    code_object: bytes,
    doors: list[tuple[str, int]],
) -> bytes:
    """The block that a ready child reads.

    Raises:
        ToolError: (kind `arguments`) text that is not Unicode.
    """
    job = SlotJob(
        program=program_name(request, command),
        code=program_content(request, command),
        command=list(command.argv) if command else [],
        executable=command is not None and command.content is not None,
        code_object=code_object,
        stdin=None if request.stdin is None else encoded(request.stdin),
        args=request.args,
        env=command.env(request.env) if command else request.env,
        files={name: binascii.a2b_base64(content) for name, content in request.files.items()},
        fetches=bool(fetched_names(request)),
        echoes=request.echo_last_expression,
        figures=request.figures,
        session=False,
        doors=doors,
        fresh_interpreter=fresh_interpreter or any(name.startswith(_START_UP_VARIABLES) for name in request.env),
        limits=limits,
    )
    return block(job)


_UNLIMITED_CPU_S = 1 << 30


def session_job(request: SessionRequest) -> bytes:
    """The block that a ready child reads that is to become a session."""
    job = SlotJob(
        program="",
        code=b"",
        command=[],
        executable=False,
        code_object=b"",
        stdin=None,
        args=[],
        env=request.env,
        files={name: binascii.a2b_base64(content) for name, content in request.files.items()},
        fetches=False,
        echoes=False,
        figures=False,
        session=True,
        doors=[],
        fresh_interpreter=False,
        # Each cell sets its own limit of CPU time.
        limits=job_limits(request) | {"cpu_s": _UNLIMITED_CPU_S},
    )
    return block(job)


def cell_job(request: CellRequest) -> bytes:
    """The block that a head reads.

    Raises:
        ToolError: (kind `arguments`) text that is not Unicode.
    """
    encoded(request.code)
    return block({"code": request.code, "figures": request.figures, "fetch_files": request.fetch_files})


def block(value: object) -> bytes:
    """`value` as the jail receives it: its length, then the marshalled value."""
    data = marshal.dumps(value)  # type: ignore[arg-type]
    return len(data).to_bytes(_LENGTH_BYTES, "little") + data
