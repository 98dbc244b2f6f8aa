"""Pool: what runs programs. The server knows nothing else of how it is done."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from types import TracebackType
from typing import Protocol, Self

from ..schemas.errors import ErrorKind, ToolError
from ..schemas.run import RunRequest, RunResult
from .command import Command
from .languages import LANGUAGES, PYTHON


@dataclass(frozen=True, slots=True)
class PoolInfo:
    """A pool's capacity and load.

    Attributes:
        kind: how programs are started.
        slots: programs at a time. `queue`: requests that may wait. `running`, `waiting`: now.
    """

    kind: str
    slots: int
    queue: int
    running: int
    waiting: int


class Pool(Protocol):
    """Runs programs, a bounded number at a time. Safe to use from many tasks of one event loop."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End all programs that still run."""

    async def run(self, request: RunRequest, command: Command | None = None, code_object: bytes = b"") -> RunResult:
        """Run one program; a program's own failure is a result.

        Args:
            command: how it starts; None for a Python program. Requests in other languages come here by `Programs`.
            code_object: of a Python program, what `Compiler.compile_python` made of its code.

        Cancelling the task ends the program, frees the slot, and is raised again.

        Raises:
            ToolError: (kind `arguments`) the request cannot be served as it is; the text names the field.
            OverloadedError: the queue is full.
            SandboxError: the program could not be run.
        """
        ...

    def info(self) -> PoolInfo: ...

    def packages(self) -> dict[str, dict[str, str]]:
        """Tier -> packages that it has imported beforehand, and their versions. Others are imported when asked for."""
        ...


_PYTHON_NAMES = next((each.name, *each.aliases) for each in LANGUAGES if each.name == PYTHON)


def check_python(request: RunRequest) -> None:
    """What a pool does without a command.

    Raises:
        ToolError: (kind `arguments`) the request is in another language.
    """
    if request.language not in _PYTHON_NAMES:
        raise ToolError(f"language: {request.language!r} needs a command", ErrorKind.ARGUMENTS)


def installed(names: tuple[str, ...]) -> dict[str, str]:
    """The versions of those packages that are installed."""
    versions: dict[str, str] = {}
    for name in names:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions
