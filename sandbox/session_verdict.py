"""What a cell did, from what init and the captures saw and what the head reported."""

from __future__ import annotations

import math
import os
import signal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ..schemas.run import Base64, RunLimits, RunStatus
from ..schemas.session import CellError, CellRequest, CellResult, StateChange
from .capture import Capture
from .jail import head
from .jail.frames import CellOrder, CellOutcome
from .verdict import BY_REASON, MEMORY_ERROR, hint, left_out

HINDRANCES = {
    head.THREADS: "background threads are running",
    head.SHARED_MEMORY: "writable shared memory is mapped",
    head.CHANNELS: "pipes or sockets are open",
    head.TASKS: "asyncio tasks are waiting",
    head.NO_PROCESS: "no process could be forked within limits.processes",
    head.NO_BACKUP: "the files could not be set aside",
    head.ASKED: "the cell was not transactional",
}
_BROKEN = "the cell closed, or wrote to, the descriptors by which the sandbox knows of its end"


class CellReport(BaseModel):
    """What a head says of its cell. It is a program's word, and is taken for no more than its output is."""

    model_config = ConfigDict(extra="forbid")

    exit_code: int = Field(ge=0, le=255)
    value: str | None = None
    error: CellError | None = None
    error_line: int | None = None
    figures: list[Base64] = Field(default_factory=list, max_length=16)
    files: dict[str, Base64] = Field(default_factory=dict)
    unfetched: dict[str, int] = Field(default_factory=dict)


def read_report(data: bytes) -> CellReport | None:
    """None for what is no report."""
    try:
        return CellReport.model_validate_json(data)
    except ValidationError:
        return None


def judge_cell(
    request: CellRequest,
    limits: RunLimits,
    order: CellOrder,
    outcome: CellOutcome,
    report: CellReport | None,
    streams: tuple[Capture, Capture],
    *,
    asked_s: float,
) -> CellResult:
    """Build the result of a cell that was asked for at `asked_s` (CLOCK_MONOTONIC)."""
    stdout, stderr = streams
    error_text = stderr.text()
    last_line = error_text.rstrip().rpartition("\n")[2]
    kept = outcome["state"] in ("committed", "in_place")
    code = os.waitstatus_to_exitcode(outcome["wait_status"])
    status = _status(outcome, order, report, code)
    said = report if kept else None
    advice = left_out(said.unfetched if said else {}) or hint(last_line, has_stdin=request.stdin is not None)
    return CellResult(
        status=status,
        exit_code=said.exit_code if said else (code if code >= 0 and not kept else None),
        signal=-code if code < 0 else None,
        stdout=stdout.text(),
        stderr=error_text,
        stdout_bytes=stdout.total_bytes,
        stderr_bytes=stderr.total_bytes,
        stdout_truncated=stdout.truncated,
        stderr_truncated=stderr.truncated,
        hint=_BROKEN if kept and report is None else advice,
        error_line=said.error_line if said else None,
        last_expression=said.value if said else None,
        figures=said.figures if said else [],
        files={name: said.files[name] for name in request.fetch_files if name in said.files} if said else {},
        start_ms=(outcome["started_s"] - asked_s) * 1000,
        run_ms=(outcome["ended_s"] - outcome["started_s"]) * 1000,
        cpu_ms=outcome["cpu_s"] * 1000,
        peak_memory_mb=outcome["peak_memory_bytes"] / 2**20,
        cell=order["cell"],
        state=StateChange(outcome["state"]),
        state_note=_note(outcome, order, limits, code),
        error=said.error if said else None,
    )


def _status(outcome: CellOutcome, order: CellOrder, report: CellReport | None, code: int) -> RunStatus:
    if outcome["reason"] in BY_REASON:
        return BY_REASON[outcome["reason"]]
    if outcome["state"] in ("committed", "in_place"):
        if report is not None and report.error is not None and MEMORY_ERROR.match(report.error.name):
            return RunStatus.MEMORY
        return RunStatus.OK if report is not None and report.exit_code == 0 else RunStatus.ERROR
    if code == -signal.SIGXCPU or (code == -signal.SIGKILL and outcome["cpu_s"] >= math.ceil(order["cpu_s"])):
        return RunStatus.TIMEOUT
    return RunStatus.ERROR


def _note(outcome: CellOutcome, order: CellOrder, limits: RunLimits, code: int) -> str | None:
    """One or two sentences on what became of the session; None where nothing is to be said."""
    why = HINDRANCES.get(outcome["hindrance"], "")
    if outcome["state"] == "committed":
        return None
    if outcome["state"] == "in_place":
        ran = f"{why}, so the cell ran without a way back"
        return f"{ran}; {_end(outcome, order, limits, code)}" if outcome["reason"] != "exit" else ran
    end = _end(outcome, order, limits, code)
    if outcome["state"] == "rolled_back":
        return f"{end}; the session is as it was before the cell"
    return f"{end}; there was no way back{f' ({why})' if why else ''}, so the session is gone: open a new one"


def _end(outcome: CellOutcome, order: CellOrder, limits: RunLimits, code: int) -> str:
    if outcome["reason"] == "wall" or code == -signal.SIGXCPU:
        return f"the cell ran longer than {order['wall_s']:g} s by the clock, or {order['cpu_s']:g} CPU seconds"
    if outcome["reason"] == "memory":
        return f"the cell used more memory than {limits.memory_mb} MiB"
    if outcome["reason"] == "server":
        return f"the cell wrote more than {limits.output_kill_mb} MiB to one stream"
    if outcome["reason"] == "protocol":
        return _BROKEN
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    return f"the cell ended the session's process ({how})"
