"""PythonExecutorTool: the model writes a program, the sandbox runs it, the model reads what it printed."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from pydantic import Field, ValidationError, field_validator

from ..sandbox.bearer import check_token
from ..sandbox.client import Sandbox, check_url
from ..schemas.errors import ConfigError, ErrorKind, ToolError
from ..schemas.run import RunLimits, RunRequest, RunResult, RunStatus
from ..schemas.tool import ToolResponse
from . import sandbox_connection
from .base import BaseTool, CallContext, ToolConfig, ToolReturn
from .program_text import own_traceback, strip_fence

_ERROR_KINDS = {
    RunStatus.ERROR: ErrorKind.USER_CODE,
    RunStatus.TIMEOUT: ErrorKind.TIMEOUT,
    RunStatus.MEMORY: ErrorKind.MEMORY,
    RunStatus.OUTPUT_LIMIT: ErrorKind.OUTPUT_LIMIT,
    RunStatus.COMPILE_ERROR: ErrorKind.USER_CODE,
}


class PythonExecutorConfig(ToolConfig):
    """Attributes:
    sandbox_url: address of a sandbox server, or `embedded` or `docker` for one that this process starts.
    sandbox_token: the server's token; None takes it from the variable ROLLBOX_SANDBOX_TOKEN, where that is set.
    timeout_sec: seconds that a program may run (time in the queue not counted).
    memory_mb: MiB of the whole process tree. output_bytes: bytes kept of each stream.
    """

    sandbox_url: str = sandbox_connection.EMBEDDED
    sandbox_token: str | None = Field(default=None, repr=False)
    timeout_sec: float = Field(default=10.0, gt=0, le=3600)
    memory_mb: int = Field(default=1024, ge=16)
    output_bytes: int = Field(default=16_384, ge=256)

    @field_validator("sandbox_url")
    @classmethod
    def _address(cls, value: str) -> str:
        try:
            own = value in (sandbox_connection.EMBEDDED, sandbox_connection.CONTAINER)
            return value if own else check_url(value)
        except ConfigError as error:
            raise ValueError(f"{error}, or the word 'embedded' or 'docker'") from error

    @field_validator("sandbox_token")
    @classmethod
    def _token(cls, value: str | None) -> str | None:
        return None if value is None else check_token(value, "sandbox_token")  # as ConfigError: it shows no value


class PythonExecutorTool(BaseTool):
    """Runs each program in a fresh jail; nothing is kept between calls."""

    config_model = PythonExecutorConfig
    config: PythonExecutorConfig
    default_schema: ClassVar[dict[str, Any]] = {
        "type": "function",
        "function": {
            "name": "python",
            "description": "Run a Python program and return what it prints. Nothing is kept between calls.",
            "parameters": {
                "type": "object",
                "properties": {"code": {"type": "string", "description": "The program. Print the result."}},
                "required": ["code"],
            },
        },
    }

    def __init__(self, config: dict[str, Any] | None = None, tool_schema: Any = None) -> None:
        super().__init__(config, tool_schema)
        self._connected: dict[asyncio.AbstractEventLoop, asyncio.Task[Sandbox]] = {}

    async def execute(self, instance_id: str, parameters: dict[str, Any], **kwargs: Any) -> ToolReturn:
        """Run `parameters["code"]`. A program's own failure is an answer, with its kind in the metrics.

        Raises:
            ToolError: `code` is missing or no text.
            SandboxError, OverloadedError: the sandbox failed or stayed full until the deadline.
        """
        request = self._request(parameters)
        context = kwargs.get("context")
        deadline_s = context.remaining_s() if isinstance(context, CallContext) else None
        sandbox = await self._sandbox()
        result, retries = await sandbox.run_counted(request, deadline_s=deadline_s)
        metrics: dict[str, Any] = {
            "queue_ms": result.queue_ms,
            "run_ms": result.start_ms + result.run_ms,
            "cpu_ms": result.cpu_ms,
            "retries": retries,
            "truncated": result.stdout_truncated or result.stderr_truncated,
        }
        if result.status is not RunStatus.OK:
            metrics |= {"error_kind": error_kind(result), "error": _last_line(result)}
        return ToolResponse(text=describe(result, self.config)), 0.0, metrics

    async def aclose(self) -> None:
        if self._connected.pop(asyncio.get_running_loop(), None) is not None:
            await sandbox_connection.release(self.config.sandbox_url, self.config.sandbox_token)

    async def _sandbox(self) -> Sandbox:
        loop = asyncio.get_running_loop()
        task = self._connected.get(loop)
        if task is None or (task.done() and (task.cancelled() or task.exception())):
            acquiring = sandbox_connection.acquire(self.config.sandbox_url, self.config.sandbox_token)
            task = self._connected[loop] = asyncio.create_task(acquiring)
        return await asyncio.shield(task)

    def _request(self, parameters: dict[str, Any]) -> RunRequest:
        code = parameters.get("code") if isinstance(parameters, dict) else None
        if not isinstance(code, str) or not code.strip():
            raise ToolError("Wrong arguments: 'code' must be a non-empty string.", ErrorKind.ARGUMENTS)
        limits = RunLimits(
            wall_s=self.config.timeout_sec, memory_mb=self.config.memory_mb, output_bytes=self.config.output_bytes
        )
        try:
            return RunRequest(code=strip_fence(code), limits=limits)
        except ValidationError as error:
            raise ToolError(f"Wrong arguments: 'code': {error.errors()[0]['msg']}.", ErrorKind.ARGUMENTS) from error


def error_kind(result: RunResult) -> ErrorKind:
    """The kind of a run that did not end well."""
    return _ERROR_KINDS[result.status]


def describe(result: RunResult, config: PythonExecutorConfig) -> str:
    """What the model reads: the output, then for a failure what went wrong in its own lines."""
    parts = [result.stdout.rstrip()]
    match result.status:
        case RunStatus.OK if not parts[0]:
            parts.append("(The program printed nothing. Use print() to see a value.)")
        case RunStatus.ERROR:
            parts += [own_traceback(result.stderr), _exit_note(result)]
        case RunStatus.TIMEOUT:
            parts.append(f"Timed out after {config.timeout_sec:g} s.")
        case RunStatus.MEMORY:
            parts.append(f"Out of memory: the limit is {config.memory_mb} MiB.")
        case RunStatus.COMPILE_ERROR if result.compile is not None:
            parts.append(f"The program could not be compiled.\n{result.compile.stderr.strip()}")
        case RunStatus.OUTPUT_LIMIT:
            parts.append("Stopped: the program printed far too much.")
    if result.hint:
        parts.append(f"Hint: {result.hint}")
    return "\n".join(part for part in parts if part)


def _exit_note(result: RunResult) -> str:
    if result.signal is not None:
        return f"The program was ended by signal {result.signal}."
    return "" if result.stderr.strip() else f"The program ended with exit code {result.exit_code}."


def _last_line(result: RunResult) -> str:
    lines = result.stderr.strip().splitlines()
    return lines[-1][:500] if lines else result.status.value
