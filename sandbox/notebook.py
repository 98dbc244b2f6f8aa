"""SandboxFusion's `POST /run_jupyter`: cells that share their state, one after the other, in a session of their own."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from ..schemas.errors import ConfigError, ErrorKind, SandboxError, ToolError
from ..schemas.run import NO_OTHER_KEYS, Base64, RunStatus, WorkDirPath
from ..schemas.session import CellError, CellRequest, CellResult, SessionRequest, StateChange
from ..schemas.validation import number, validated
from .imports import imported_names
from .sandbox_fusion import CommandRunResult
from .session_errors import SessionRefusedError

if TYPE_CHECKING:
    from .sessions import Sessions

_PARSED_CHARS = 65_536

_ENDED_BY = {
    RunStatus.TIMEOUT: "TimeoutError",
    RunStatus.MEMORY: "MemoryError",
    RunStatus.OUTPUT_LIMIT: "OutputLimitError",
}


class RunJupyterRequest(BaseModel):
    """Fields that SandboxFusion does not know are ignored, as it does.

    Attributes:
        cell_timeout: seconds; 0 is none. total_timeout: seconds for all cells.
        memory_limit_MB: -1 for the server's default. files: path -> base64; None writes nothing.
    """

    model_config = ConfigDict(extra="ignore")

    cells: list[str] = Field(max_length=1024)
    cell_timeout: float = Field(default=0, ge=0, le=3600, allow_inf_nan=False)
    total_timeout: float = Field(default=45, gt=0, le=3600, allow_inf_nan=False)
    memory_limit_MB: int | None = -1  # noqa: N815 - the wire's name
    kernel: Literal["python3"] = "python3"
    files: dict[WorkDirPath, Base64 | None] = Field(default_factory=dict, json_schema_extra=NO_OTHER_KEYS)
    fetch_files: list[WorkDirPath] = Field(default_factory=list)

    _numbers = field_validator("cell_timeout", "total_timeout", "memory_limit_MB", mode="before")(number)

    def to_session_request(self) -> SessionRequest:
        """
        Raises:
            ToolError: (kind `arguments`) a value is outside what the sandbox accepts.
        """
        limits: dict[str, float] = {"wall_s": self.total_timeout}
        if self.memory_limit_MB is not None and self.memory_limit_MB > 0:
            limits["memory_mb"] = self.memory_limit_MB
        files = {name: content for name, content in self.files.items() if content is not None}
        data = {"limits": limits, "files": files, "packages": _imports(self.cells)}
        try:
            return validated(SessionRequest, data, "run_jupyter")
        except ConfigError as error:
            raise ToolError(str(error), ErrorKind.ARGUMENTS) from error


def _imports(cells: list[str]) -> list[str]:
    """Of the packages that the cells import, those that choose a tier."""
    small = sum(map(len, cells)) < _PARSED_CHARS
    return sorted(frozenset[str]().union(*map(imported_names, cells)) if small else imported_names("\n".join(cells)))


class CellRunResult(BaseModel):
    """`display` holds mime bundles; `error` at most one of ename, evalue, traceback."""

    stdout: str = ""
    stderr: str = ""
    display: list[dict[str, Any]] = Field(default_factory=list)
    error: list[dict[str, Any]] = Field(default_factory=list)

    @classmethod
    def from_result(cls, result: CellResult) -> CellRunResult:
        display: list[dict[str, Any]] = [{"image/png": image} for image in result.figures]
        if result.last_expression is not None:
            display.append({"text/plain": result.last_expression})
        error, stderr = result.error, result.stderr
        if error is None and result.status is not RunStatus.OK:
            error = CellError(name=_ENDED_BY.get(result.status, "DeadKernelError"), text=result.state_note or "")
        found = []
        if error is not None:
            # There the traceback is apart from what the cell itself wrote.
            stderr = stderr.removesuffix("".join(error.traceback))
            found.append({"ename": error.name, "evalue": error.text, "traceback": error.traceback})
        return cls(stdout=result.stdout, stderr=stderr, display=display, error=found)


class RunJupyterResponse(BaseModel):
    """`status` is `Success` when all cells were run, whatever became of each; `Failed` when the run ended before."""

    status: Literal["Success", "Failed", "SandboxError"]
    message: str = ""
    driver: CommandRunResult | None = None
    cells: list[CellRunResult] = Field(default_factory=list)
    executor_pod_name: str | None = None
    files: dict[str, str] = Field(default_factory=dict)

    @classmethod
    def from_error(cls, error: SandboxError) -> RunJupyterResponse:
        return cls(status="SandboxError", message=str(error))


async def run_notebook(sessions: Sessions, request: RunJupyterRequest) -> RunJupyterResponse:
    """Run the cells in a session of their own.

    Raises:
        ToolError: (kind `arguments`) a value is outside what the sandbox accepts.
        OverloadedError: there are as many sessions as there may be, or the queue is full.
    """
    asked = request.to_session_request()
    try:
        info = await sessions.create(asked)
        try:
            return await _Notebook(sessions, info.id, request).run()
        finally:
            with suppress(SessionRefusedError):
                sessions.close(info.id)
    except SandboxError as error:
        return RunJupyterResponse.from_error(error)
    except SessionRefusedError as error:
        # Its session went away under it: to this wire's clients that is the sandbox's failure, as any other.
        if error.kind is not ErrorKind.INFRA:
            raise
        return RunJupyterResponse.from_error(SandboxError(str(error)))


class _Notebook:
    def __init__(self, sessions: Sessions, session_id: str, request: RunJupyterRequest) -> None:
        self._sessions = sessions
        self._id = session_id
        self._request = request
        self._spent_s = 0.0
        self._answer = RunJupyterResponse(status="Success")

    async def run(self) -> RunJupyterResponse:
        timed_out, answer = False, self._answer
        for code in self._request.cells:
            timed_out = not await self._cell(code)
            if timed_out or answer.message:
                answer.status = "Failed"
                break
        if self._request.fetch_files and not answer.message:
            fetched = await self._sessions.run(self._id, CellRequest(code="", fetch_files=self._request.fetch_files))
            answer.files = fetched.files
        if timed_out:
            answer.message = "timeout"
        answer.driver = CommandRunResult(
            status="TimeLimitExceeded" if timed_out else "Finished",
            execution_time=self._spent_s,
            return_code=None if timed_out else 0,
            stdout="",
            stderr="",
        )
        return answer

    async def _cell(self, code: str) -> bool:
        """Run a cell, and keep what it said; says whether the time for all of them was enough."""
        left_s = self._request.total_timeout - self._spent_s
        if left_s <= 0:
            return False
        own_s = self._request.cell_timeout or left_s
        request = CellRequest(code=code, wall_s=min(left_s, own_s), figures=True)
        result = await self._sessions.run(self._id, request)
        self._spent_s += result.run_ms / 1000
        if result.status is RunStatus.TIMEOUT and left_s <= own_s:
            return False
        self._answer.cells.append(CellRunResult.from_result(result))
        if result.state is StateChange.LOST:
            self._answer.message = result.state_note or ""
        return True
