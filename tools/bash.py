"""BashTool: the model writes shell commands, the sandbox runs them, the model reads what they printed."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import ValidationError

from ..schemas.errors import ErrorKind, InfraError, ToolError
from ..schemas.run import RunRequest, RunResult, RunStatus
from ..schemas.tool import ToolResponse
from .base import ToolReturn
from .program_text import program_of
from .sandbox_tool import SandboxTool, SandboxToolConfig, TrajectoryState, deadline_s_of, metrics_of, state_note

NO_OUTPUT = "(The command printed nothing.)"

# A cell of a session runs the command in a new shell, between reading and writing down what a shell has: variables,
# functions, aliases, options and the folder. Readonly variables are bash's own, and stay out.
_CELL = '''
def __rollbox_shell__(command):
    import subprocess
    script = r"""
    . /tmp/.shell_state 2>/dev/null
    __save() {
        {
            declare -p | grep -v '^declare -[a-zA-Z]*r'
            declare -f; alias -p; shopt -p
            printf 'cd %q\\n' "$PWD"
        } > /tmp/.shell_state
    }
    trap __save EXIT
    eval "$1"
    """
    raise SystemExit(subprocess.run(["bash", "-c", script, "bash", command]).returncode)
'''


class BashConfig(SandboxToolConfig):
    """Settings as in `SandboxToolConfig`."""


class BashTool(SandboxTool):
    """Runs each command in a fresh jail, or `stateful` in the shell that the trajectory's earlier commands left."""

    config_model = BashConfig
    config: BashConfig
    default_schema: ClassVar[dict[str, Any]] = {
        "type": "function",
        "function": {
            "name": "bash",
            "description": "Run a bash command or script and return what it prints. Nothing is kept between calls.",
            "parameters": {
                "type": "object",
                "properties": {"command": {"type": "string", "description": "The command or script."}},
                "required": ["command"],
            },
        },
    }
    stateful_description = (
        "Run a bash command or script and return what it prints. Variables, the current folder and files stay."
    )
    example: ClassVar[dict[str, Any] | None] = {"command": "echo $((6 * 7))"}

    async def execute(self, instance_id: str, parameters: dict[str, Any], **kwargs: Any) -> ToolReturn:
        """Run `parameters["command"]`. A command's own failure is an answer, with its kind in the metrics.

        Raises:
            ToolError: `command` is missing or no text.
            SandboxError, OverloadedError: the sandbox failed or stayed full until the deadline.
            InfraError: the server has no bash.
        """
        command = program_of(parameters, "command")
        state = self._state(instance_id)
        result, retries = await self._run(command, state, deadline_s_of(kwargs))
        return (
            ToolResponse(text=describe(result, self.config)),
            self._rewarded(result, state),
            metrics_of(result, retries),
        )

    async def _run(self, command: str, state: TrajectoryState, deadline_s: float | None) -> tuple[RunResult, int]:
        if self.config.stateful:
            return await self._run_cell(f"{_CELL}__rollbox_shell__({command!r})", state, deadline_s), 0
        try:
            request = RunRequest(code=command, language="bash", limits=self.config.limits, files=state.files.files)
        except ValidationError as error:
            raise ToolError(f"Wrong arguments: 'command': {error.errors()[0]['msg']}.", ErrorKind.ARGUMENTS) from error
        sandbox = await self._sandbox()
        try:
            return await sandbox.run_counted(request, deadline_s=deadline_s)
        except ToolError as error:
            if "language" in str(error):  # no fault of the model's
                raise InfraError(f"the sandbox cannot run bash: {error}") from error
            raise


def describe(result: RunResult, config: SandboxToolConfig) -> str:
    """What the model reads: both streams, then how the command ended if not well."""
    parts = [result.stdout.rstrip(), result.stderr.replace("main.sh: ", "").rstrip()]
    match result.status:
        case RunStatus.OK if not any(parts):
            parts.append(NO_OUTPUT)
        case RunStatus.ERROR if result.signal is not None:
            parts.append(f"The command was ended by signal {result.signal}.")
        case RunStatus.ERROR:
            parts.append(f"The command ended with exit code {result.exit_code}.")
        case RunStatus.TIMEOUT:
            parts.append(f"Timed out after {config.timeout_sec:g} s.")
        case RunStatus.MEMORY:
            parts.append(f"Out of memory: the limit is {config.memory_mb} MiB.")
        case RunStatus.OUTPUT_LIMIT:
            parts.append("Stopped: the command printed far too much.")
    if result.hint:
        parts.append(f"Hint: {result.hint}")
    parts.append(state_note(result))
    return "\n".join(part for part in parts if part)
