"""SandboxTool: the base of tools whose calls are run in the sandbox."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import Any, ClassVar

from pydantic import Field, field_validator

from ..sandbox.client import Sandbox, check_url
from ..sandbox.embedded import require_server
from ..sandbox.session_client import SandboxSession
from ..schemas.errors import ConfigError, ErrorKind, InfraError, SessionLostError, ToolError
from ..schemas.run import RunLimits, RunResult, RunStatus
from ..schemas.session import CellResult, SessionRequest, StateChange
from ..schemas.tool import ToolResponse, ToolSchema
from ..serving.bearer import check_token
from . import sandbox_connection
from .base import BaseTool, CallContext, ToolConfig, create_kwargs_of
from .kept_files import KeptFiles
from .sandbox_fleet import SandboxFleet

logger = logging.getLogger(__name__)

_ERROR_KINDS = {
    RunStatus.ERROR: ErrorKind.USER_CODE,
    RunStatus.TIMEOUT: ErrorKind.TIMEOUT,
    RunStatus.MEMORY: ErrorKind.MEMORY,
    RunStatus.OUTPUT_LIMIT: ErrorKind.OUTPUT_LIMIT,
    RunStatus.COMPILE_ERROR: ErrorKind.USER_CODE,
}


class SandboxToolConfig(ToolConfig):
    """Attributes:
    sandbox_url: address of a sandbox server, a list of addresses, or `embedded` or `docker` for one that this process
        starts.
    sandbox_token: the server's token; None takes it from the variable ROLLBOX_SANDBOX_TOKEN, where that is set.
    timeout_sec: seconds that a program may run (time in the queue not counted).
    memory_mb: MiB of the whole process tree. output_bytes: bytes kept of each stream.
    stateful: one session for each trajectory, in which a call finds what the earlier ones left; else each call starts
        afresh. Under verl's own loop, which releases a tool after each call, there is nothing to find.
    error_penalty: taken from the step reward of a call whose program fails.
    first_success_bonus: added to the step reward of the first call of a trajectory whose program does not.
    """

    sandbox_url: str | list[str] = sandbox_connection.EMBEDDED
    sandbox_token: str | None = Field(default=None, repr=False)
    timeout_sec: float = Field(default=10.0, gt=0, le=3600)
    memory_mb: int = Field(default=1024, ge=16)
    output_bytes: int = Field(default=16_384, ge=256)
    stateful: bool = False
    error_penalty: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    first_success_bonus: float = Field(default=0.0, ge=0, allow_inf_nan=False)

    @field_validator("sandbox_url")
    @classmethod
    def _address(cls, value: str | list[str]) -> str | list[str]:
        if value in (sandbox_connection.EMBEDDED, sandbox_connection.CONTAINER):
            return value
        if not value:
            raise ValueError("the list of addresses is empty")
        try:
            checked = [check_url(url) for url in ([value] if isinstance(value, str) else value)]
        except ConfigError as error:
            raise ValueError(f"{error}, or the word 'embedded' or 'docker'") from error
        if len(set(checked)) < len(checked):
            raise ValueError("an address is there twice")
        return checked[0] if isinstance(value, str) else checked

    @field_validator("sandbox_token")
    @classmethod
    def _token(cls, value: str | None) -> str | None:
        return None if value is None else check_token(value, "sandbox_token")  # as ConfigError: it shows no value

    @property
    def limits(self) -> RunLimits:
        return RunLimits(wall_s=self.timeout_sec, memory_mb=self.memory_mb, output_bytes=self.output_bytes)


@dataclass(slots=True)
class TrajectoryState:
    """What one trajectory's calls leave for the next ones.

    Attributes:
        succeeded: a program ended well.
        session: of a stateful tool, opened at its first call. lost: it went away, and the model is to be told.
    """

    files: KeptFiles
    succeeded: bool = False
    session: SandboxSession | None = None
    lost: bool = False
    opening: asyncio.Lock = field(default_factory=asyncio.Lock)


class SandboxTool(BaseTool):
    """Connects at its first call; tools of one process with the same address share the connection.

    Attributes:
        stateful_description: what a `stateful` tool is described as; None keeps the description of `default_schema`.

    Raises:
        ConfigError: `sandbox_url` is `embedded`, and what a server is made of is not installed; and as `BaseTool`.
    """

    config_model = SandboxToolConfig
    config: SandboxToolConfig
    max_kept_bytes = 0
    stateful_description: ClassVar[str | None] = None

    def __init__(self, config: dict[str, Any] | None = None, tool_schema: Any = None) -> None:
        super().__init__(config, tool_schema)
        if self.config.sandbox_url == sandbox_connection.EMBEDDED:
            require_server()
        self._connected: dict[asyncio.AbstractEventLoop, asyncio.Task[Sandbox | SandboxFleet]] = {}
        self._states: dict[str, TrajectoryState] = {}

    def get_openai_tool_schema(self) -> ToolSchema | None:
        """The default schema; it says whether anything is kept."""
        schema = super().get_openai_tool_schema()
        if schema is not None and self.config.stateful and self.stateful_description is not None:
            schema.function.description = self.stateful_description
        return schema

    async def create(self, instance_id: str | None = None, **kwargs: Any) -> tuple[str, ToolResponse]:
        """Begin a trajectory. `create_kwargs` may hold `files`: work-dir path -> base64 content.

        Raises:
            ConfigError: `files` is no such mapping.
        """
        instance_id, response = await super().create(instance_id, **kwargs)
        files = create_kwargs_of(kwargs).get("files") or {}
        if not isinstance(files, dict) or not all(isinstance(text, str) for pair in files.items() for text in pair):
            raise ConfigError(f"create_kwargs of tool {self.name!r}: files must map paths to base64 texts")
        self._states[instance_id] = TrajectoryState(KeptFiles(files, self.max_kept_bytes))
        return instance_id, response

    async def release(self, instance_id: str, **kwargs: Any) -> None:
        state = self._states.pop(instance_id, None)
        if state is not None and state.session is not None:
            try:
                await state.session.close()
            except InfraError as error:  # it ends by itself once it has been idle for long
                logger.warning("a session of tool %r was not closed: %s", self.name, error)

    async def aclose(self) -> None:
        if self._connected.pop(asyncio.get_running_loop(), None) is not None:
            await sandbox_connection.release(self._address, self.config.sandbox_token)

    def step_reward(self, result: RunResult, first_success: bool) -> float:
        """The reward of one call; a subclass may shape it otherwise."""
        if result.status is not RunStatus.OK:
            return -self.config.error_penalty
        return self.config.first_success_bonus if first_success else 0.0

    @property
    def _address(self) -> str:
        urls = self.config.sandbox_url
        return urls if isinstance(urls, str) else sandbox_connection.SEPARATOR.join(urls)

    def _state(self, instance_id: str) -> TrajectoryState:
        """Of a trajectory; a passing one for callers that never called `create`."""
        return self._states.get(instance_id) or TrajectoryState(KeptFiles({}, self.max_kept_bytes))

    async def _sandbox(self) -> Sandbox | SandboxFleet:
        loop = asyncio.get_running_loop()
        task = self._connected.get(loop)
        if task is None or (task.done() and (task.cancelled() or task.exception())):
            acquiring = sandbox_connection.acquire(self._address, self.config.sandbox_token)
            task = self._connected[loop] = asyncio.create_task(acquiring)
        return task.result() if task.done() else await asyncio.shield(task)

    async def _run_cell(
        self, code: str, state: TrajectoryState, deadline_s: float | None, *, figures: bool = False
    ) -> CellResult:
        """Run a cell in the trajectory's session.

        Raises:
            ToolError: (kind `user_code`) an earlier cell ended the session; the next call gets a new one.
            SessionLostError, OverloadedError, SandboxError: ours.
        """
        async with state.opening:
            if state.session is None:
                sandbox = await self._sandbox()
                request = SessionRequest(limits=self.config.limits, files=state.files.files)
                opening_s = {} if deadline_s is None else {"deadline_s": deadline_s}
                state.session = await sandbox.create_session(request, **opening_s)
            session = state.session
        try:
            result = await session.run(code, wall_s=self.config.timeout_sec, figures=figures, deadline_s=deadline_s)
        except (SessionLostError, ToolError) as error:
            if isinstance(error, SessionLostError) or error.kind is ErrorKind.USER_CODE:
                state.session, state.lost = None, True
            raise
        if result.state is StateChange.LOST:
            state.session = None  # its note says so
        elif state.lost:
            state.lost = False
            lost = "the session was lost: variables and files of earlier calls are gone"
            note = f"{result.state_note}; {lost}" if result.state_note else lost
            result = result.model_copy(update={"state_note": note})
        return result

    def _rewarded(self, result: RunResult, state: TrajectoryState) -> float:
        ok = result.status is RunStatus.OK
        reward = self.step_reward(result, ok and not state.succeeded)
        state.succeeded = state.succeeded or ok
        return reward


def deadline_s_of(kwargs: dict[str, Any]) -> float | None:
    """Seconds that are left to the call, where the caller says."""
    context = kwargs.get("context")
    return context.remaining_s() if isinstance(context, CallContext) else None


def error_kind(result: RunResult) -> ErrorKind:
    """The kind of a run that did not end well."""
    return _ERROR_KINDS[result.status]


def state_note(result: RunResult) -> str:
    """What the model must know of its session after a cell; empty when all is as it expects."""
    if not isinstance(result, CellResult) or not result.state_note:
        return ""
    note = result.state_note
    return f"({note[:1].upper()}{note[1:]}.)"


def metrics_of(result: RunResult, retries: int) -> dict[str, Any]:
    """What the CallRecord keeps of a run."""
    metrics: dict[str, Any] = {
        "queue_ms": result.queue_ms,
        "run_ms": result.start_ms + result.run_ms,
        "cpu_ms": result.cpu_ms,
        "retries": retries,
        "truncated": result.stdout_truncated or result.stderr_truncated,
    }
    if result.status is not RunStatus.OK:
        metrics |= {"error_kind": error_kind(result), "error": _last_line(result)}
    return metrics


def _last_line(result: RunResult) -> str:
    lines = result.stderr.strip().splitlines()
    return lines[-1][:500] if lines else result.status.value
