"""Verdict: from what init and the captures saw to a RunResult, with a hint on common mistakes."""

from __future__ import annotations

import asyncio
import base64
import math
import os
import re
import signal
from functools import partial

from ..schemas.run import RunRequest, RunResult, RunStatus
from .capture import Capture
from .command import Command
from .jail import policy
from .jail.frames import JobLimits, Outcome

MEMORY_ERROR = re.compile(r"(?:\w+\.)*_?\w*MemoryError\b")
_MISSING_MODULE = re.compile(r"ModuleNotFoundError: No module named '([^']+)'")
_OWN_LINE = re.compile(rf'^  File "{policy.WORK_DIR}/_*main\.py", line (\d+)', re.MULTILINE)
_BY_ITSELF = (RunStatus.OK, RunStatus.ERROR)
_LARGE_BYTES = 262_144
BY_REASON = {"wall": RunStatus.TIMEOUT, "memory": RunStatus.MEMORY, "server": RunStatus.OUTPUT_LIMIT}


async def judged(
    request: RunRequest,
    limits: JobLimits,
    outcome: Outcome,
    stdout: Capture,
    stderr: Capture,
    *,
    asked_s: float,
    command: Command | None = None,
) -> RunResult:
    """`judge`, without holding up the event loop for the largest outputs."""
    build = partial(judge, request, limits, outcome, stdout, stderr, asked_s=asked_s, command=command)
    large = stdout.kept_bytes + stderr.kept_bytes >= _LARGE_BYTES
    return await asyncio.to_thread(build) if large else build()


def judge(
    request: RunRequest,
    limits: JobLimits,
    outcome: Outcome,
    stdout: Capture,
    stderr: Capture,
    *,
    asked_s: float,
    command: Command | None = None,
) -> RunResult:
    """Build the result of a run that was asked for at `asked_s` (CLOCK_MONOTONIC)."""
    code = os.waitstatus_to_exitcode(outcome["wait_status"])
    error_text = stderr.text()
    last_line = error_text.rstrip().rpartition("\n")[2]
    out_of_memory = _ran_out_of_memory(code, last_line) if command is None else _refused(code, error_text, command)
    status = _status(outcome, limits, code, out_of_memory=out_of_memory)
    # A program may have ended by itself before it could be stopped; it wrote too much all the same.
    if status in _BY_ITSELF and max(stdout.total_bytes, stderr.total_bytes) > request.limits.output_kill_mb << 20:
        status = RunStatus.OUTPUT_LIMIT
    of_python = command is None
    files = outcome["files"]
    return RunResult(
        status=status,
        exit_code=code if code >= 0 else None,
        signal=-code if code < 0 else None,
        stdout=stdout.text(),
        stderr=error_text,
        stdout_bytes=stdout.total_bytes,
        stderr_bytes=stderr.total_bytes,
        stdout_truncated=stdout.truncated,
        stderr_truncated=stderr.truncated,
        hint=left_out(outcome["unfetched"])
        or (hint(last_line, has_stdin=request.stdin is not None) if of_python else None),
        error_line=_error_line(error_text) if of_python and code == 1 and status is not RunStatus.TIMEOUT else None,
        last_expression=_value(files.pop(policy.VALUE_FILE, None)) if request.echo_last_expression else None,
        figures=[files.pop(name) for name in policy.FIGURE_FILES if name in files] if request.figures else [],
        files=files,
        start_ms=(outcome["started_s"] - asked_s) * 1000,
        run_ms=(outcome["ended_s"] - outcome["started_s"]) * 1000,
        cpu_ms=outcome["cpu_s"] * 1000,
        peak_memory_mb=outcome["peak_memory_bytes"] / 2**20,
    )


def _error_line(error_text: str) -> int | None:
    """The innermost line of the program in the last traceback, which is the one that ended it."""
    lines = _OWN_LINE.findall(error_text.rpartition("Traceback (most recent call last)")[2])
    return int(lines[-1]) if lines else None


def _value(content: str | None) -> str | None:
    return None if content is None else base64.b64decode(content).decode(errors="backslashreplace")


def _ran_out_of_memory(code: int, last_line: str) -> bool:
    return code == 1 and MEMORY_ERROR.match(last_line) is not None


def _refused(code: int, error_text: str, command: Command) -> bool:
    """Whether a program in another language says that an allocation was refused. Only its own end hangs on it."""
    return code != 0 and re.search(command.language.out_of_memory, error_text) is not None


def _status(outcome: Outcome, limits: JobLimits, code: int, *, out_of_memory: bool) -> RunStatus:
    if outcome["reason"] in BY_REASON:
        return BY_REASON[outcome["reason"]]
    if code == -signal.SIGXCPU:
        return RunStatus.TIMEOUT
    # The kernel's second answer to too much CPU time, for a program that caught the first.
    if code == -signal.SIGKILL and outcome["cpu_s"] >= math.ceil(limits["cpu_s"]):
        return RunStatus.TIMEOUT
    if out_of_memory:
        return RunStatus.MEMORY
    return RunStatus.OK if code == 0 else RunStatus.ERROR


def left_out(unfetched: dict[str, int]) -> str | None:
    """What to say of files that were too large to send back."""
    if not unfetched:
        return None
    sizes = ", ".join(f"{name} ({size} bytes)" for name, size in unfetched.items())
    return f"too large to send back: {sizes}"


def hint(last_line: str, *, has_stdin: bool) -> str | None:
    """Advice on a common mistake of Python programs, by the last line of stderr."""
    if last_line.startswith("EOFError") and not has_stdin:
        return "no stdin is attached, so input() has nothing to read: put the data in the code, or pass `stdin`"
    if last_line.startswith("SyntaxError: 'await' outside"):
        return (
            "a program cannot await at its top level: put the code in `async def main()` and call asyncio.run(main())"
        )
    missing = _MISSING_MODULE.match(last_line)
    if missing:
        return f"{missing[1]} is not installed in the sandbox, and there is no network to install it from"
    return None
