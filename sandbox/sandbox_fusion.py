"""The wire format of SandboxFusion's `POST /run_code`, for clients that speak it already."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from ..schemas.errors import ConfigError, ErrorKind, SandboxError, ToolError
from ..schemas.run import NO_OTHER_KEYS, Base64, RunRequest, RunResult, RunStatus, WorkDirPath
from ..schemas.validation import number, validated


class RunCodeRequest(BaseModel):
    """Fields that SandboxFusion does not know are ignored, as it does.

    Attributes:
        run_timeout: seconds. `compile_timeout` is accepted and has no use for Python.
        memory_limit_MB: -1 for the server's default; also None, which verl sends where none is configured.
        files: path -> base64; None writes nothing.
    """

    model_config = ConfigDict(extra="ignore")

    code: str
    language: Literal["python"]
    stdin: str | None = None
    compile_timeout: float = 10
    run_timeout: float = Field(default=10, gt=0, le=3600, allow_inf_nan=False)
    memory_limit_MB: int | None = -1  # noqa: N815 - the wire's name
    files: dict[WorkDirPath, Base64 | None] = Field(default_factory=dict, json_schema_extra=NO_OTHER_KEYS)
    fetch_files: list[WorkDirPath] = Field(default_factory=list)

    _numbers = field_validator("compile_timeout", "run_timeout", "memory_limit_MB", mode="before")(number)

    def to_run_request(self) -> RunRequest:
        """
        Raises:
            ToolError: (kind `arguments`) a value is outside what the sandbox accepts.
        """
        return as_run_request(
            "run_code",
            {"code": self.code, "language": self.language, "stdin": self.stdin, "fetch_files": self.fetch_files},
            files=self.files,
            wall_s=self.run_timeout,
            memory_limit_mb=self.memory_limit_MB,
        )


def as_run_request(
    where: str,
    data: dict[str, Any],
    *,
    files: Mapping[str, str | None],
    wall_s: float,
    memory_limit_mb: int | None,
) -> RunRequest:
    """What all of SandboxFusion's calls have in common: files that may be None, and a memory limit that may be -1.

    Raises:
        ToolError: (kind `arguments`) a value is outside what the sandbox accepts.
    """
    limits: dict[str, float] = {"wall_s": wall_s}
    if memory_limit_mb is not None and memory_limit_mb > 0:
        limits["memory_mb"] = memory_limit_mb
    written = {name: content for name, content in files.items() if content is not None}
    try:
        return validated(RunRequest, data | {"files": written, "limits": limits}, where)
    except ConfigError as error:
        raise ToolError(str(error), ErrorKind.ARGUMENTS) from error


class CommandRunResult(BaseModel):
    """`return_code` is None after a time limit, and the negative signal number after a signal."""

    status: Literal["Finished", "Error", "TimeLimitExceeded"]
    execution_time: float | None = None
    return_code: int | None = None
    stdout: str | None = None
    stderr: str | None = None


class RunCodeResponse(BaseModel):
    """`status` is `Success` for exit code 0, `Failed` for any other end, `SandboxError` when the code did not run."""

    status: Literal["Success", "Failed", "SandboxError"]
    message: str = ""
    compile_result: CommandRunResult | None = None
    run_result: CommandRunResult | None = None
    executor_pod_name: str | None = None
    files: dict[str, str] = Field(default_factory=dict)

    @classmethod
    def from_result(cls, result: RunResult) -> RunCodeResponse:
        timed_out = result.status is RunStatus.TIMEOUT
        killed_for = result.status.value if result.status in (RunStatus.MEMORY, RunStatus.OUTPUT_LIMIT) else ""
        code = -result.signal if result.signal is not None else result.exit_code
        run = CommandRunResult(
            status="TimeLimitExceeded" if timed_out else "Finished",
            execution_time=result.run_ms / 1000,
            return_code=None if timed_out else code,
            stdout=result.stdout,
            stderr=result.stderr,
        )
        status: Literal["Success", "Failed"] = "Success" if result.status is RunStatus.OK else "Failed"
        return cls(status=status, message=result.hint or killed_for, run_result=run, files=result.files)

    @classmethod
    def from_error(cls, error: SandboxError) -> RunCodeResponse:
        return cls(status="SandboxError", message=str(error))
