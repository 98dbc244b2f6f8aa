"""PythonExecutorTool: the model writes a program, the sandbox runs it, the model reads what it printed."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from pydantic import Field, ValidationError

from ..schemas.errors import ErrorKind, ToolError
from ..schemas.run import RunRequest, RunResult, RunStatus
from ..schemas.tool import ToolResponse
from .base import ToolReturn
from .images import read_images, require_pillow, with_notes
from .program_text import own_traceback, program_of
from .sandbox_tool import (
    SandboxTool,
    SandboxToolConfig,
    TrajectoryState,
    deadline_s_of,
    error_kind,
    metrics_of,
    state_note,
)

__all__ = ["PythonExecutorConfig", "PythonExecutorTool", "describe", "error_kind"]


class PythonExecutorConfig(SandboxToolConfig):
    """Settings as in `SandboxToolConfig`, and:

    Attributes:
        echo_last_expression: show the value of a final bare expression, as an interactive session does.
        figures: answer with the matplotlib figures that are open at the end, as images; for models that see them.
        keep_files: files that a program writes under a name that stands in its text are there for the trajectory's
            next program (see `kept_files`). keep_files_mb: MiB of them at most.
    """

    echo_last_expression: bool = False
    figures: bool = False
    keep_files: bool = False
    keep_files_mb: int = Field(default=16, ge=1, le=32)


class PythonExecutorTool(SandboxTool):
    """Runs each program in a fresh jail, or `stateful` as the next cell of the trajectory's session.

    Raises:
        ConfigError: `figures` without Pillow; and as `BaseTool`.
    """

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
    stateful_description = (
        "Run Python code and return what it prints. Variables, imports and files stay for the next call."
    )
    example: ClassVar[dict[str, Any] | None] = {"code": "print(6 * 7)"}

    def __init__(self, config: dict[str, Any] | None = None, tool_schema: Any = None) -> None:
        super().__init__(config, tool_schema)
        self.max_kept_bytes = self.config.keep_files_mb * 2**20
        if self.config.figures:
            require_pillow(f"{type(self).__name__}: config.figures")

    async def execute(self, instance_id: str, parameters: dict[str, Any], **kwargs: Any) -> ToolReturn:
        """Run `parameters["code"]`. A program's own failure is an answer, with its kind in the metrics.

        Raises:
            ToolError: `code` is missing or no text.
            SandboxError, OverloadedError: the sandbox failed or stayed full until the deadline.
        """
        code = program_of(parameters, "code")
        state = self._state(instance_id)
        result, retries = await self._run(code, state, deadline_s_of(kwargs))
        metrics = metrics_of(result, retries)
        if not self.config.echo_last_expression:
            result = result.model_copy(update={"last_expression": None})  # cells send it unasked
        text = describe(result, self.config)
        if self.config.keep_files and not self.config.stateful and not state.files.update(result.files):
            text += f"\n(The files are more than {self.config.keep_files_mb} MiB, and were not kept.)"
        images = None
        if result.figures:
            images, problems = await asyncio.to_thread(read_images, result.figures)
            text, metrics["images_left_out"] = with_notes(text, problems), len(problems)
        return ToolResponse(text=text, image=images or None), self._rewarded(result, state), metrics

    async def _run(self, code: str, state: TrajectoryState, deadline_s: float | None) -> tuple[RunResult, int]:
        if self.config.stateful:
            return await self._run_cell(code, state, deadline_s, figures=self.config.figures), 0
        if self.config.keep_files:
            state.files.note(code)
        try:
            request = RunRequest(
                code=code,
                limits=self.config.limits,
                files=state.files.files,
                fetch_files=sorted(state.files.names) if self.config.keep_files else [],
                echo_last_expression=self.config.echo_last_expression,
                figures=self.config.figures,
            )
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(map(str, first["loc"])) or "code"
            raise ToolError(f"Wrong arguments: {field!r}: {first['msg']}.", ErrorKind.ARGUMENTS) from error
        sandbox = await self._sandbox()
        return await sandbox.run_counted(request, deadline_s=deadline_s)


def describe(result: RunResult, config: SandboxToolConfig) -> str:
    """What the model reads: the output, then for a failure what went wrong in its own lines."""
    parts = [result.stdout.rstrip(), result.last_expression or ""]
    match result.status:
        case RunStatus.OK if result.figures and not any(parts):
            parts.append("(The program printed nothing, and drew the figure below.)")
        case RunStatus.OK if not any(parts):
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
    parts.append(state_note(result))
    return "\n".join(part for part in parts if part)


def _exit_note(result: RunResult) -> str:
    if result.signal is not None:
        return f"The program was ended by signal {result.signal}."
    return "" if result.stderr.strip() else f"The program ended with exit code {result.exit_code}."
