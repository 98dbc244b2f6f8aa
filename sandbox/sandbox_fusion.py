"""The wire format of SandboxFusion's `POST /run_code`, for clients that speak it already."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from ..schemas.errors import ConfigError, ErrorKind, SandboxError, ToolError
from ..schemas.run import NO_OTHER_KEYS, Base64, CompileResult, RunRequest, RunResult, RunStatus, WorkDirPath
from ..schemas.validation import number, validated


class RunCodeRequest(BaseModel):
    """Fields that SandboxFusion does not know are ignored, as it does.

    Attributes:
        language: one of SandboxFusion's names that this server has.
        run_timeout, compile_timeout: seconds.
        memory_limit_MB: -1 for the server's default; also None, which verl sends where none is configured.
        files: path -> base64; None writes nothing.
    """

    model_config = ConfigDict(extra="ignore")

    code: str
    language: str = Field(max_length=64)
    stdin: str | None = None
    compile_timeout: float = Field(default=10, gt=0, le=3600, allow_inf_nan=False)
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
            compile_wall_s=self.compile_timeout if "compile_timeout" in self.model_fields_set else None,
            memory_limit_mb=self.memory_limit_MB,
        )


def as_run_request(
    where: str,
    data: dict[str, Any],
    *,
    files: Mapping[str, str | None],
    wall_s: float,
    memory_limit_mb: int | None,
    compile_wall_s: float | None = None,
) -> RunRequest:
    """What all of SandboxFusion's calls have in common: files that may be None, and a memory limit that may be -1.

    Raises:
        ToolError: (kind `arguments`) a value is outside what the sandbox accepts.
    """
    limits: dict[str, float] = {"wall_s": wall_s}
    if memory_limit_mb is not None and memory_limit_mb > 0:
        limits["memory_mb"] = memory_limit_mb
    if compile_wall_s is not None:
        limits["compile_wall_s"] = compile_wall_s
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

    @classmethod
    def of(cls, result: RunResult | CompileResult) -> CommandRunResult:
        """What ended by itself is `Finished`, with whatever code. `Error` is a compiler that failed without one."""
        timed_out = result.status is RunStatus.TIMEOUT
        failed_silently = result.status is RunStatus.ERROR and result.exit_code == 0
        code = -result.signal if result.signal is not None else result.exit_code
        return cls(
            status="TimeLimitExceeded" if timed_out else "Error" if failed_silently else "Finished",
            execution_time=result.run_ms / 1000,
            return_code=None if timed_out else code,
            stdout=result.stdout,
            stderr=result.stderr,
        )


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
        compiled = None if result.compile is None else CommandRunResult.of(result.compile)
        if result.status is RunStatus.COMPILE_ERROR:
            return cls(status="Failed", compile_result=compiled)
        killed_for = result.status.value if result.status in (RunStatus.MEMORY, RunStatus.OUTPUT_LIMIT) else ""
        return cls(
            status="Success" if result.status is RunStatus.OK else "Failed",
            message=result.hint or killed_for,
            compile_result=compiled,
            run_result=CommandRunResult.of(result),
            files=result.files,
        )

    @classmethod
    def from_error(cls, error: SandboxError) -> RunCodeResponse:
        return cls(status="SandboxError", message=str(error))
