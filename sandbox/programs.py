"""Programs: runs requests in any language on a pool: compiled first where the language is."""

from __future__ import annotations

from dataclasses import dataclass

from ..schemas.errors import ErrorKind, ToolError
from ..schemas.run import CompileResult, RunLimits, RunRequest, RunResult, RunStatus
from .command import Command
from .compiler import Compiler
from .languages import PYTHON
from .pool import Pool
from .settings import SandboxSettings
from .toolchains import Toolchains, names


@dataclass(frozen=True, slots=True)
class Prepared:
    """A program that can be run any number of times, unless its `failed` says that it could not be compiled.

    Attributes:
        command: how it starts; None for a Python program. code_object: of a Python program that was compiled ahead.
        compile: None for what was not compiled. queue_ms: what compiling waited for a slot.
    """

    command: Command | None = None
    code_object: bytes = b""
    compile: CompileResult | None = None
    queue_ms: float = 0.0

    @property
    def failed(self) -> bool:
        return self.compile is not None and self.compile.status is not RunStatus.OK


def check_limits(limits: RunLimits, settings: SandboxSettings) -> None:
    """
    Raises:
        ToolError: (kind `arguments`) they are more than this server gives.
    """
    asked = (
        ("wall_s", limits.wall_s, settings.max_wall_s),
        ("memory_mb", limits.memory_mb, settings.max_memory_mb),
        ("compile_wall_s", limits.compile_wall_s, settings.max_wall_s),
    )
    for field, value, most in asked:
        # Defaults are cut to what there is: who did not ask is not refused.
        if value > most and (field != "compile_wall_s" or field in limits.model_fields_set):
            text = f"limits.{field}: {value} is more than this server allows ({most})"
            raise ToolError(text, ErrorKind.ARGUMENTS)


class Programs:
    """The way from a request to a pool, which knows nothing of languages."""

    def __init__(self, pool: Pool, settings: SandboxSettings, toolchains: Toolchains) -> None:
        self.toolchains = toolchains
        self._pool = pool
        self._settings = settings
        self._compiler = Compiler(pool, settings.max_wall_s, settings.max_memory_mb)

    def check(self, request: RunRequest) -> None:
        """
        Raises:
            ToolError: (kind `arguments`) it asks for what this server does not give.
        """
        self.toolchains.check(request)
        check_limits(request.limits, self._settings)

    async def prepare(self, request: RunRequest, *, ahead: bool = False, driver: str = "") -> Prepared:
        """Compile the program, if its language is compiled, and say how it is run.

        Args:
            ahead: compile Python programs too, which costs a run, for those that will be run often.
            driver: a Python program to put around it, which holds it as the constant `"PROGRAM"`.

        Raises:
            ToolError: (kind `arguments`) the request cannot be served as it is.
            OverloadedError: the queue is full.
            SandboxError: the compiler could not be run.
        """
        toolchain = self.toolchains.of(request.language)
        language = toolchain.language
        if language.name == PYTHON:
            return await self._prepare_python(request, driver) if ahead else Prepared()
        placeholders = names(language, request.code, request.limits)
        argv = toolchain.command(language.run, placeholders)
        if language.compile is None:
            return Prepared(Command(language, argv, placeholders["source"]))
        compiled = await self._compiler.compile(request, toolchain, language.compile)
        if compiled.artifact is None:
            return Prepared(compile=compiled.result, queue_ms=compiled.queue_ms)
        command = Command(language, argv, placeholders["artifact"], compiled.artifact)
        return Prepared(command, compile=compiled.result, queue_ms=compiled.queue_ms)

    async def _prepare_python(self, request: RunRequest, driver: str) -> Prepared:
        compiled = await self._compiler.compile_python(request, driver)
        return Prepared(None, compiled.artifact or b"", compiled.result, compiled.queue_ms)

    async def run_prepared(self, request: RunRequest, prepared: Prepared) -> RunResult:
        """As `Pool.run`, for a program that was prepared from a request with the same code."""
        return await self._pool.run(request, prepared.command, prepared.code_object)

    async def run(self, request: RunRequest) -> RunResult:
        """As `Pool.run`, for any language. A program that does not compile has status `compile_error`."""
        prepared = await self.prepare(request)
        if prepared.failed:
            return RunResult(status=RunStatus.COMPILE_ERROR, compile=prepared.compile, queue_ms=prepared.queue_ms)
        result = await self.run_prepared(request, prepared)
        result.compile = prepared.compile
        result.queue_ms += prepared.queue_ms
        return result
