"""Verdict: from what init and the captures saw to a RunResult, with a hint on common mistakes."""

from __future__ import annotations

import base64
import math
import os
import re
import signal

from ..schemas.run import RunRequest, RunResult, RunStatus
from .capture import Capture
from .jail import policy
from .jail.frames import JobLimits, Outcome

MEMORY_ERROR = re.compile(r"(?:\w+\.)*_?\w*MemoryError\b")
_MISSING_MODULE = re.compile(r"ModuleNotFoundError: No module named '([^']+)'")
_OWN_LINE = re.compile(rf'^  File "{policy.WORK_DIR}/_*main\.py", line (\d+)', re.MULTILINE)
BY_REASON = {"wall": RunStatus.TIMEOUT, "memory": RunStatus.MEMORY, "server": RunStatus.OUTPUT_LIMIT}


def judge(
    request: RunRequest, limits: JobLimits, outcome: Outcome, stdout: Capture, stderr: Capture, *, asked_s: float
) -> RunResult:
    """Build the result of a run that was asked for at `asked_s` (CLOCK_MONOTONIC)."""
    code = os.waitstatus_to_exitcode(outcome["wait_status"])
    error_text = stderr.text()
    last_line = error_text.rstrip().rpartition("\n")[2]
    status = _status(outcome, limits, code, last_line)
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
        hint=hint(outcome["unfetched"], last_line, has_stdin=request.stdin is not None),
        error_line=_error_line(error_text) if code == 1 and status is not RunStatus.TIMEOUT else None,
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


def _status(outcome: Outcome, limits: JobLimits, code: int, last_line: str) -> RunStatus:
    if outcome["reason"] in BY_REASON:
        return BY_REASON[outcome["reason"]]
    if code == -signal.SIGXCPU:
        return RunStatus.TIMEOUT
    # The kernel's second answer to too much CPU time, for a program that caught the first.
    if code == -signal.SIGKILL and outcome["cpu_s"] >= math.ceil(limits["cpu_s"]):
        return RunStatus.TIMEOUT
    if code == 1 and MEMORY_ERROR.match(last_line):
        return RunStatus.MEMORY
    return RunStatus.OK if code == 0 else RunStatus.ERROR


def hint(unfetched: dict[str, int], last_line: str, *, has_stdin: bool) -> str | None:
    """Advice on a common mistake, by the last line of stderr."""
    if unfetched:
        sizes = ", ".join(f"{name} ({size} bytes)" for name, size in unfetched.items())
        return f"too large to send back: {sizes}"
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
